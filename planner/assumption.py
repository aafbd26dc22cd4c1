"""A number that no formula gives: its value, the band it was seen in, and where."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Assumption", "assumed"]


class Assumption(BaseModel):
    """A value with its low-high band, in base units, and its source."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    value: float
    low: float
    high: float
    source: str
    calibrated: bool = False  # set by a pilot on the user's own card


def assumed(value: float, low: float, high: float, source: str, *, unit: float = 1) -> Any:
    """A field whose default is this assumption, made when it is first needed."""
    return Field(default_factory=lambda: Assumption(value=value * unit, low=low * unit, high=high * unit, source=source))
