"""Predict memory of a fine-tuning job, explain every byte, and say on which card it fits."""

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model, load_gpus, load_models
from planner.errors import PlannerError
from planner.hub import load_model
from planner.job import Job
from planner.memory import Assumptions, MemoryBreakdown, memory_breakdown
from planner.plan import Plan, cards_that_fit, largest_that_fits, make_plan, sweep
from planner.remedies import remedies

__all__ = [
    "Architecture", "Assumptions", "Job", "MemoryBreakdown", "Plan", "PlannerError", "cards_that_fit", "find_gpu", "find_model",
    "largest_that_fits", "load_gpus", "load_model", "load_models", "make_plan", "memory_breakdown", "remedies", "sweep",
]  # fmt: skip
