"""How exported files are written: a header that says whose they are and what they cannot say, and YAML without a library.

Texts of a plan come from other people: they enter a file as comments of one line, as JSON strings or quoted for the shell only.
"""

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["MARK", "commented", "header", "yaml_text"]

MARK = "written by planner export"  # in the first lines of every file; what lacks it is not overwritten


def commented(lines: Iterable[str]) -> str:
    """Comment lines of Python, YAML and shell; whatever would end a line, or could not be printed, becomes a space."""
    return "".join(
        f"# {' '.join(''.join(c if c.isprintable() else ' ' for c in line).split())}".rstrip() + "\n" for line in lines
    )


def header(what: str, title: str, notes: Iterable[str]) -> str:
    """What a file is, of which plan, and what of the plan it does not say."""
    notes = list(notes)
    lines = [f"{what}; {MARK}" + (f" from the plan {title!r}" if title else "")]
    if notes:
        lines += ["", "What of the plan is otherwise here:", *(f"- {note}" for note in notes)]
    return commented(lines)


def yaml_text(values: dict[str, Any]) -> str:
    """A mapping as YAML: scalars and keys as JSON, of which YAML is a superset; texts of several lines as blocks."""
    return "".join(_lines(values, ""))


def _lines(values: dict[str, Any], indent: str) -> Iterable[str]:
    for key, value in values.items():
        name = f"{indent}{key if key.replace('_', '').isalnum() else json.dumps(key)}:"
        if isinstance(value, dict) and value:
            yield f"{name}\n"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
            yield f"{name}\n"
            for item in value:
                yield from _item(item, indent + "  ")
        elif isinstance(value, str) and "\n" in value and value.replace("\n", "").isprintable():
            yield f"{name} |\n"
            yield from (f"{indent}  {line}".rstrip() + "\n" for line in value.rstrip("\n").split("\n"))
        else:
            yield f"{name} {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    """JSON; but YAML 1.1 takes 1e-05 for a text, as it has no point, knows no surrogates, and ends lines at more letters."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def _item(values: dict[str, Any], indent: str) -> Iterable[str]:
    """One mapping of a list: its first line carries the dash."""
    first, *rest = _lines(values, indent + "  ")
    yield f"{indent}- {first.lstrip()}"
    yield from rest
