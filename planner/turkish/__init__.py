"""Turkish, by the English sentence. Terms of the field stay as engineers say them: VRAM, batch, checkpoint, adapter."""

from planner.turkish.exports import EXPORTS
from planner.turkish.memory import MEMORY
from planner.turkish.plans import PLANS
from planner.turkish.runs import RUNS

__all__ = ["TURKISH"]

TURKISH: dict[str, str] = {**MEMORY, **RUNS, **PLANS, **EXPORTS}
