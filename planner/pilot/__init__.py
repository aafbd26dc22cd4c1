"""The micro-pilot: a few real steps of a job in a process of their own, measured, and held against the plan.

`run` starts, watches and ends it; `record` reads its log; `compare` holds it against the closed form. What imports torch is the
worker's alone (`worker`, `model`, `measure`).
"""

from planner.pilot.record import Measurement, read_measurement
from planner.pilot.run import Run, devices, find_runs, start

__all__ = ["Measurement", "Run", "devices", "find_runs", "read_measurement", "start"]
