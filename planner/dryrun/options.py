"""The options of PyTorch's CUDA caching allocator that a replay knows. Source: c10/cuda/CUDAAllocatorConfig.cpp."""

from dataclasses import dataclass

from planner.errors import InvalidJob
from planner.units import MiB

__all__ = ["DEFAULT_OPTIONS", "AllocatorOptions", "parse_options"]


@dataclass(frozen=True, slots=True)
class AllocatorOptions:
    """The part of PYTORCH_CUDA_ALLOC_CONF that decides where blocks lie."""

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None  # blocks of this size and more are not split; None: all may be
    roundup_power2_divisions: int = 0  # a request is rounded up to one of so many steps per power of two; 0 and 1: off

    def __post_init__(self) -> None:
        limit, divisions = self.max_split_size_bytes, self.roundup_power2_divisions
        if limit is not None and limit < 20 * MiB:
            raise InvalidJob(
                "{name} is {given}; it must be at least {limit}", name="max_split_size_mb", given=f"{limit / MiB:g}", limit=20
            )
        if divisions < 0 or divisions & (divisions - 1):
            name, powers = "roundup_power2_divisions", "0, 1, 2, 4, 8, 16, …"
            raise InvalidJob("{name} is {given}; it must be {expected}", name=name, given=divisions, expected=powers)


DEFAULT_OPTIONS = AllocatorOptions()
_KNOWN = ("expandable_segments", "max_split_size_mb", "roundup_power2_divisions")


def parse_options(text: str) -> AllocatorOptions:
    """Options from the syntax of PYTORCH_CUDA_ALLOC_CONF: `expandable_segments:True,max_split_size_mb:128`."""
    found: dict[str, str] = {}
    for part in filter(None, "".join(text.split()).split(",")):
        name, _, given = part.partition(":")
        if name not in _KNOWN:
            known = ", ".join(_KNOWN)
            raise InvalidJob("the allocator option {name!r} is unknown here; the known ones are {known}", name=name, known=known)
        if name == "expandable_segments":
            if given not in ("True", "False"):
                raise InvalidJob("{name} is {given}; it must be {expected}", name=name, given=repr(given), expected="True, False")
        elif not (given.isascii() and given.isdigit() and len(given) < 10):
            template = "{name} is {given}; it must be a number (a whole one for sizes and counts)"
            raise InvalidJob(template, name=name, given=repr(given))
        found[name] = given
    return AllocatorOptions(
        expandable_segments=found.get("expandable_segments") == "True",
        max_split_size_bytes=int(found["max_split_size_mb"]) * MiB if "max_split_size_mb" in found else None,
        roundup_power2_divisions=int(found.get("roundup_power2_divisions", "0")),
    )
