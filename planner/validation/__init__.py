"""Predictions held against published measurements: rows as jobs, errors, bands."""
