"""What a pilot of the workbook is asked to do: its mode, how long, and rows and weights from the one folder that the owner opened."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from planner.errors import InvalidJob, PlannerError
from planner.texts import translated
from planner.units import format_number
from planner.workbook.page_html import relabel

__all__ = ["PilotControls", "inside"]

MODES = {
    "micro": "a few steps", "shallow": "two depths, extrapolated", "timed": "the whole loop, for some time",
    "largest": "find the largest micro-batch",
}  # fmt: skip
LABELS = {
    "mode": "What the pilot does",
    "steps": "Optimizer steps",
    "minutes": "Minutes",
    "data": "Training rows",
    "weights": "Trained weights",
}
_READ = {
    "micro": {"steps", "data", "weights"},
    "shallow": {"steps", "data"},
    "timed": {"minutes", "data", "weights"},
    "largest": {"weights"},
}
PLACEHOLDERS = {"data": "random tokens", "weights": "random ones"}
_STEPS = (6, 10, 20, 50, 100, 300, 1000)
_MINUTES = (1, 2, 5, 10, 20, 30, 60, 120)
_ROWS = (".jsonl", ".json", ".ndjson", ".csv", ".parquet", ".txt")
_OFFERED = 200  # names; more can be typed
# Letters and digits of any language first: no hidden file, no pattern, no address, no way up.
_PART = re.compile(r"\w[\w .,+=@()-]*")


def inside(folder: Path, name: str, *, file: bool) -> Path:
    """The file (or folder) that `name` means within `folder`. Raises InvalidJob for all else, whether it exists or not."""
    parts = name.split("/")
    if len(name) > 500 or not all(_PART.fullmatch(part) for part in parts):
        raise InvalidJob("{name!r} is no name that a pilot takes; choose one that is offered", name=name[:80])
    with suppress(OSError, ValueError, RuntimeError):  # it is not there, or links go round in a circle
        root = folder.resolve(strict=True)
        found = root.joinpath(*parts).resolve(strict=True)
        held = [found] if file else [found, *found.rglob("*")]
        if found.is_file() is file and all(path.resolve(strict=True).is_relative_to(root) for path in held):
            return found
    raise InvalidJob("the pilot's folder has no {name!r}, or it leads out of the folder; choose one that is offered", name=name)


def _offered(folder: Path, field: str) -> Iterator[str]:
    """Names within the folder: files of rows, or folders with safetensors."""
    for path in sorted(folder.rglob("*")):
        shown = path.relative_to(folder).as_posix()
        if field == "weights":
            fits = path.name == "config.json" and any(path.parent.glob("*.safetensors"))
            shown = path.parent.relative_to(folder).as_posix()
        else:
            fits = path.suffix in _ROWS and path.name not in ("config.json", "tokenizer.json") and path.is_file()
        if fits:
            with suppress(PlannerError):
                inside(folder, shown, file=field == "data")
                yield shown


class PilotControls(widgets.VBox):
    """The controls; their values are the only state. Without a `folder` neither rows nor weights can be named."""

    def __init__(self, folder: Path | None, *, steps: int = 20) -> None:
        self._folder, self._values = folder, {"steps": sorted({*_STEPS, steps}), "minutes": _MINUTES}
        self.by_field: dict[str, widgets.Widget] = {
            "mode": widgets.Dropdown(options=list(MODES)),
            "steps": widgets.SelectionSlider(options=self._values["steps"], value=steps),
            "minutes": widgets.SelectionSlider(options=self._values["minutes"], value=60),
        }
        if folder:
            for field in PLACEHOLDERS:
                self.by_field[field] = widgets.Combobox(
                    options=tuple(islice(_offered(folder, field), _OFFERED)), ensure_option=False
                )
        super().__init__(list(self.by_field.values()))
        self.add_class("planner-groups")
        self.by_field["mode"].observe(self._show_relevant, names="value")
        self._show_relevant()

    def _show_relevant(self, _change: Any = None) -> None:
        read = _READ[self.by_field["mode"].value] | {"mode"}
        for field, control in self.by_field.items():
            control.layout.display = None if field in read else "none"

    def request(self) -> dict[str, Any]:
        """Fields of planner.pilot.request.Request. Raises InvalidJob for a name that is none of the folder's."""
        mode = self.by_field["mode"].value
        asked: dict[str, Any] = {"shallow": mode == "shallow", "largest_micro_batch": mode == "largest"}
        for field in _READ[mode] & self.by_field.keys():
            value = self.by_field[field].value
            if field in PLACEHOLDERS:
                if self._folder and value.strip():
                    asked[field] = str(inside(self._folder, value.strip(), file=field == "data"))
            else:
                asked[field] = value
        return asked

    def translate(self, language: str) -> None:
        """Labels and choices in one language; values stay."""
        choices: dict[str, Any] = {"mode": [(translated(text, language), name) for name, text in MODES.items()]}
        for field, values in self._values.items():
            choices[field] = [(format_number(value, language=language), value) for value in values]
        for field, control in self.by_field.items():
            control.description = translated(LABELS[field], language)
            if field in choices:
                relabel(control, choices[field])
            else:
                control.placeholder = translated(PLACEHOLDERS[field], language)

    def enable(self, on: bool) -> None:
        """Whether anything can be changed; nothing can while a pilot runs."""
        for control in self.by_field.values():
            control.disabled = not on
