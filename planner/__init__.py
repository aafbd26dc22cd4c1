"""Predict memory, time and money of a fine-tuning job, explain every number, and say on which card and offer it fits."""

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model, load_gpus, load_models, load_offers, load_providers
from planner.compute import step_time
from planner.dataset import measure_dataset
from planner.errors import PlannerError
from planner.hub import load_model
from planner.job import Job
from planner.memory import Assumptions, MemoryBreakdown, memory_breakdown
from planner.placement import Demand
from planner.plan import Plan, cards_that_fit, largest_that_fits, make_plan, sweep
from planner.ranking import Wishes, cheapest, fastest, rank_offers
from planner.remedies import remedies
from planner.sharding import Sharding
from planner.workload import Workload

__all__ = [
    "Architecture", "Assumptions", "Demand", "Job", "MemoryBreakdown", "Plan", "PlannerError", "Sharding", "Wishes", "Workload",
    "cards_that_fit", "cheapest", "fastest", "find_gpu", "find_model", "largest_that_fits", "load_gpus", "load_model", "load_models",
    "load_offers", "load_providers", "make_plan", "measure_dataset", "memory_breakdown", "rank_offers", "remedies", "step_time", "sweep",
]  # fmt: skip
