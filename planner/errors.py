"""What can go wrong, as one small tree; every message says what was asked, what is known and what to do.

PlannerError
├── UnknownName    a name that no catalogue, folder or hub knows
│   └── AmbiguousName  a name that is part of several
├── BadRow         a data file whose row cannot be read
├── InvalidJob     a job, architecture or option that does not exist or contradicts itself
└── HubUnavailable a model on the Hub that cannot be read: missing, gated, or no network
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from planner.texts import translated

__all__ = [
    "AmbiguousName", "BadRow", "HubUnavailable", "InvalidJob", "PlannerError", "UnknownName", "first_problem", "near_names",
]  # fmt: skip


class PlannerError(Exception):
    """Base of all errors that a user can mend.

    `template` is the English sentence with `{named}` values; `str(error)` fills it in, `text("tr")` does so in Turkish.
    `field` names the field to change, where there is one.
    """

    def __init__(self, template: str, *, field: str = "", **values: Any) -> None:
        self.template, self.field, self.values = template, field, values
        super().__init__(self.text("en"))

    def text(self, language: str) -> str:
        """The sentence in one language."""
        shown = {name: _short(value) if isinstance(value, str) else value for name, value in self.values.items()}
        return translated(self.template, language).format(**shown) if shown else translated(self.template, language)


def _short(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


class UnknownName(PlannerError, LookupError):
    """A name was asked for that is not known; `suggestions` holds near ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name = kind, name
        self.suggestions = near_names(name, known)
        template = f"no {kind} named {{name!r}}; did you mean {{near}}?" if self.suggestions else f"no {kind} named {{name!r}}"
        super().__init__(template, name=_short(name, 80), near=", ".join(map(repr, self.suggestions)))


class AmbiguousName(UnknownName):
    """A name that is none, but part of several; `suggestions` holds all of those."""

    def __init__(self, kind: str, name: str, candidates: Iterable[str]) -> None:
        self.kind, self.name, self.suggestions = kind, name, list(candidates)
        template = f"no {kind} named {{name!r}}, but several whose name holds it; which one: {{candidates}}?"
        PlannerError.__init__(self, template, name=_short(name, 80), candidates=", ".join(map(repr, self.suggestions)))


class BadRow(PlannerError, ValueError):
    """A row of a data file is broken; the message names file, line, column and value."""


class InvalidJob(PlannerError, ValueError):
    """A job or architecture is not possible."""


class HubUnavailable(PlannerError, RuntimeError):
    """The Hugging Face Hub gave no config.json for this id."""


def near_names(name: str, known: Iterable[str], *, count: int = 3) -> list[str]:
    """The known names most like `name`, whatever their case; an organisation prefix need not be typed."""
    by_key: dict[str, str] = {}
    for full in known:
        by_key.setdefault(full.lower(), full)
        by_key.setdefault(full.lower().rsplit("/", 1)[-1], full)
    asked = name.lower()[:120]
    matches = get_close_matches(asked, by_key, n=2 * count, cutoff=0.6)
    matches += [key for key in by_key if len(asked) > 2 and asked in key]
    return list(dict.fromkeys(by_key[key] for key in matches))[:count]


def first_problem(error: Any) -> InvalidJob:
    """The first problem of a pydantic ValidationError as one sentence about the field that it names."""
    problem = error.errors()[0]
    inner = problem.get("ctx", {}).get("error")
    if isinstance(inner, InvalidJob):
        return inner
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return InvalidJob("there is no field {name!r}", field=field, name=field)
    if problem["type"] == "missing":
        return InvalidJob("{name} is missing, and nothing can be planned without it", field=field, name=field)
    limits, given = problem.get("ctx", {}), _short(repr(problem["input"]), 60)
    values = {"field": field, "name": field, "given": given}
    if "expected" in limits:
        return InvalidJob("{name} is {given}; it must be {expected}", **values, expected=limits["expected"].replace(" or ", ", "))
    for bound, template in _BOUNDS.items():
        if bound in limits:
            return InvalidJob(template, **values, limit=limits[bound])
    kind = "a number" if "int" in problem["type"] or "float" in problem["type"] else "something else"
    return InvalidJob(_KINDS[kind], **values)


_BOUNDS = {
    "gt": "{name} is {given}; it must be more than {limit}",
    "ge": "{name} is {given}; it must be at least {limit}",
    "lt": "{name} is {given}; it must be less than {limit}",
    "le": "{name} is {given}; it must be at most {limit}",
}
_KINDS = {
    "a number": "{name} is {given}; it must be a number (a whole one for sizes and counts)",
    "something else": "{name} is {given}, which is not a value that it can have",
}
