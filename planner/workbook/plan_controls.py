"""What the plan asks a person to write down: target and data, criteria of the pilot, care for the data, and the delivery."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import ipywidgets as widgets

from planner.care import copies
from planner.catalogues import load_providers
from planner.errors import InvalidJob
from planner.plan_views import CLASSES
from planner.planfile import Acceptance, Care, DataVersion, Deleted, HandOver, PlanFile
from planner.texts import translated
from planner.workbook.page_html import box, relabel

__all__ = ["PlanControls"]

# Step -> field -> label. A field of a record within the plan is written with its name before the point.
FIELDS: dict[str, dict[str, str]] = {
    "target": {"title": "Title", "purpose": "What the model is trained for", "data.name": "Data (file or folder)", "example": "One example, made up"},
    "settings": {"learning_rate": "Learning rate", "warmup_share": "Warm-up (share of the steps)", "seed": "Seed"},
    "pilot": {
        "acceptance.peak_share": "Peak, at most this share of the card", "acceptance.step_s": "Seconds a step, at most",
        "acceptance.error_rate": "Steps that fail, at most this share", "acceptance.loss_falls": "The loss must fall",
    },
    "delivery": {
        "hand_over.checkpoints": "Where checkpoints live", "hand_over.result": "Where the result goes",
        "hand_over.check": "How the result is checked",
        "care.classification": "Class of the data", "care.region": "Region where the data may be", "care.providers": "Providers that may hold them",
        "care.access": "Who may access them, separated by commas", "care.deletion": "Who deletes them, and when",
        "care.encrypted_transfer": "They are moved encrypted", "care.encrypted_disk": "The disk is encrypted",
    },
}  # fmt: skip
_AREAS = ("purpose", "example", "hand_over.check")
_NUMBERS = ("learning_rate", "warmup_share", "seed", "acceptance.peak_share", "acceptance.step_s", "acceptance.error_rate")
_SWITCHES = ("acceptance.loss_falls", "care.encrypted_transfer", "care.encrypted_disk")
_RECORDS: dict[str, type[DataVersion] | type[Acceptance] | type[HandOver] | type[Care]] = {
    "data": DataVersion, "acceptance": Acceptance, "hand_over": HandOver, "care": Care,
}  # fmt: skip


class PlanControls:
    """The controls by field, in a box for each step; what they have no field for stays as in the plan that was opened."""

    def __init__(self, on_change: Callable[[], None], base: PlanFile) -> None:
        self._on_change, self._quiet = on_change, False
        self.by_field: dict[str, widgets.Widget] = {}
        self.boxes: dict[str, widgets.VBox] = {}
        for step, fields in FIELDS.items():
            for field in fields:
                self.by_field[field] = _control(field)
                self.by_field[field].observe(self._changed, names="value")
            self.boxes[step] = box("planner-groups", *(self.by_field[field] for field in fields))
        self.gone, self.delete = widgets.Dropdown(), widgets.Button()
        self.delete.on_click(self._on_deleted)
        self.deletions = widgets.HBox([self.gone, self.delete])
        self.deletions.add_class("planner-actions")
        self.base = base
        self.show(base)

    def _changed(self, _change: Any) -> None:
        if not self._quiet:
            self._on_change()

    def _on_deleted(self, _button: widgets.Button) -> None:
        """Keep that a copy is gone: what, and today's date."""
        care = self.base.care
        deleted = Deleted(what=self.gone.value, on=datetime.now(UTC).date())
        self.base = self.base.changed(care=care.model_copy(update={"deleted": (*care.deleted, deleted)}))
        self._on_change()

    def show(self, plan: PlanFile) -> None:
        """Set the controls to a plan, without telling anyone."""
        self.base, self._quiet = plan, True
        for field, control in self.by_field.items():
            control.value = _shown(field, _get(plan, field))
        self.gone.options = [copy.what for copy in copies(plan)]
        self.gone.value = self.gone.options[0]
        self._quiet = False

    def values(self) -> dict[str, Any]:
        """Fields of the plan. Raises InvalidJob for what is no number, or no value that the field can have."""
        found: dict[str, Any] = {}
        changed: dict[str, dict[str, Any]] = {name: {} for name in _RECORDS}
        for field, control in self.by_field.items():
            outer, _, inner = field.rpartition(".")
            value = _read(field, control.value)
            if outer:
                changed[outer][inner] = value
            else:
                found[field] = value
        return found | {name: self._record(name, values) for name, values in changed.items()}

    def care(self) -> Care:
        """The care for the data by itself. Raises InvalidJob."""
        fields = [field for field in self.by_field if field.startswith("care.")]
        care = self._record("care", {field.partition(".")[2]: _read(field, self.by_field[field].value) for field in fields})
        assert isinstance(care, Care)
        return care

    def _record(self, name: str, values: dict[str, Any]) -> DataVersion | Acceptance | HandOver | Care:
        kept, record = getattr(self.base, name), _RECORDS[name]
        return record(**({field: getattr(kept, field) for field in record.model_fields} | values))

    def translate(self, language: str) -> None:
        """Labels and choices in one language; values stay."""
        self._quiet = True
        for fields in FIELDS.values():
            for field, label in fields.items():
                self.by_field[field].description = translated(label, language)
        for control, options in (
            (self.by_field["care.classification"], [(translated(text, language), name) for name, text in CLASSES.items()]),
            (self.gone, [(translated(copy.what, language), copy.what) for copy in copies(self.base)]),
        ):
            relabel(control, options)
        self.by_field["care.region"].placeholder = self.by_field["care.providers"].placeholder = translated("any", language)
        self.gone.description, self.delete.description = (
            translated("A copy that is deleted", language),
            translated("Record it", language),
        )
        self._quiet = False


def _control(field: str) -> widgets.Widget:
    if field in _SWITCHES:
        return widgets.Checkbox(indent=False)
    if field == "care.classification":
        return widgets.Dropdown(options=[(text, name) for name, text in CLASSES.items()])
    if field == "care.providers":
        return widgets.Combobox(options=tuple(load_providers()), ensure_option=False, continuous_update=False)
    if field in _AREAS:
        return widgets.Textarea(rows=3, continuous_update=False)
    return widgets.Text(continuous_update=False)


def _get(plan: PlanFile, field: str) -> Any:
    outer, _, inner = field.rpartition(".")
    return getattr(getattr(plan, outer), inner) if outer else getattr(plan, inner)


def _shown(field: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(value)
    if field in _NUMBERS:
        return "" if value is None else repr(value)
    return value


def _read(field: str, value: Any) -> Any:
    """The value of a control as the plan takes it; numbers may be written with a comma, an empty criterion asks for nothing."""
    if field in ("care.providers", "care.access"):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if field not in _NUMBERS:
        return value
    text = value.strip().replace(",", ".")
    if not text and field.startswith("acceptance."):
        return None
    try:
        return int(text) if field == "seed" else float(text)
    except ValueError:
        name = field.rpartition(".")[2]
        raise InvalidJob("{name} is {given}; it must be a number", field=name, name=name, given=repr(value[:40])) from None
