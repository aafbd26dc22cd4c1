"""Turkish, by the English sentence. Terms of the field stay as engineers say them: VRAM, batch, checkpoint, adapter."""

from planner.turkish.data import DATA
from planner.turkish.exports import EXPORTS
from planner.turkish.memory import MEMORY
from planner.turkish.pages import PAGES
from planner.turkish.pilots import PILOTS
from planner.turkish.plans import PLANS
from planner.turkish.runs import RUNS
from planner.turkish.validation import VALIDATION

__all__ = ["TURKISH"]

TURKISH: dict[str, str] = {**DATA, **EXPORTS, **MEMORY, **PAGES, **PILOTS, **PLANS, **RUNS, **VALIDATION}
