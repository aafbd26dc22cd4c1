"""One row of a data set -> the text that is trained on, by the common formats of examples; or why it has none."""

from collections.abc import Iterable
from typing import Any

__all__ = ["FIELDS", "RowProblem", "example_text", "knows"]

# Fields of each format in the order of reading; the last column may be missing. Sources: what TRL, Axolotl and LLaMA-Factory document.
_FORMATS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("messages", ("messages",), ""),
    ("messages", ("conversations",), ""),
    ("instruction, input and output", ("instruction", "input", "output"), "input"),
    ("instruction, input and output", ("instruction", "context", "response"), "context"),
    ("prompt and completion", ("prompt", "completion"), ""),
    ("prompt and completion", ("prompt", "response"), ""),
    ("prompt and completion", ("question", "answer"), ""),
    ("plain text", ("text",), ""),
    ("plain text", ("content",), ""),
)
FIELDS = tuple(dict.fromkeys(name for _, fields, _ in _FORMATS for name in fields))


class RowProblem(Exception):
    """Why one row cannot be used: an English template (see planner.texts) and one word for it. Holds nothing of the row's content."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(reason)


def knows(names: Iterable[str]) -> bool:
    """Whether a table with these columns is of a known format."""
    found = set(names)
    return any(found.issuperset(set(fields) - {optional}) for _, fields, optional in _FORMATS)


def example_text(row: Any) -> tuple[str, str]:
    """The format of one example and its text. Raises RowProblem."""
    if isinstance(row, str):
        return "plain text", _text(row, "text")
    if not isinstance(row, dict):
        raise RowProblem("it is no object with named fields")
    for name, fields, optional in _FORMATS:
        if all(field in row for field in fields if field != optional):
            read = (field for field in fields if field != optional or row.get(field))
            return name, "\n".join(_field(row[field], field) for field in read)
    for _, fields, _ in _FORMATS:
        if fields[0] in row:
            raise RowProblem("the field {detail} is missing", fields[-1])
    raise RowProblem("it has none of the fields {detail}", ", ".join(dict.fromkeys(fields[0] for _, fields, _ in _FORMATS)))


def _field(value: Any, name: str) -> str:
    """A text, or a list of messages as texts in their order."""
    if not isinstance(value, list):
        return _text(value, name)
    text = "\n".join(_message(message, name) for message in value)
    if not text.strip():
        raise RowProblem("the field {detail} is empty", name)
    return text


def _message(message: Any, name: str) -> str:
    content = message.get("content", message.get("value")) if isinstance(message, dict) else None
    if isinstance(content, list):  # parts, of which images have no text
        content = "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    if content is None and isinstance(message, dict) and message.get("tool_calls"):
        return ""  # arguments of a call are the template's to write
    if not isinstance(content, str):
        raise RowProblem("a message in {detail} has no content", name)
    return content


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RowProblem("the field {detail} is missing" if value is None else "the field {detail} is no text", name)
    if not value.strip():
        raise RowProblem("the field {detail} is empty", name)
    return value
