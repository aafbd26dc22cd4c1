"""What the offers view asks for: how much there is to train, what is kept, what an offer must have, and each stage's own time."""

from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as widgets

from planner.catalogues import load_providers
from planner.dataset import Profile
from planner.delivery import STAGES
from planner.errors import InvalidJob
from planner.job import Job
from planner.placement import Demand
from planner.planfile import PlanFile
from planner.ranking import Wishes
from planner.spot import INTERRUPTIONS_PER_HOUR, SpotTerms
from planner.storage import DISK_BYTES_PER_S, StoragePolicy
from planner.texts import translated
from planner.units import format_number
from planner.workbook.page_html import box, relabel
from planner.workload import Workload

__all__ = ["OfferControls"]

# Field of a record -> (label, values, the one to begin with).
_SLIDERS: dict[str, tuple[str, tuple[float, ...], float]] = {
    "examples": ("Training examples", (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000), 10_000),
    "tokens_per_example": ("Tokens per example", (50, 100, 200, 300, 500, 750, 1000, 1500, 2000, 4000, 8000), 500),
    "epochs": ("Epochs", (1, 2, 3, 4, 5, 10, 20), 3),
    "global_batch_size": ("Rows per optimizer step", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), 16),
    "evaluation_examples": ("Examples evaluated per epoch", (0, 100, 300, 1000, 3000, 10_000), 0),
    "checkpoint_steps": ("Steps between checkpoints", (10, 25, 50, 100, 200, 500, 1000), 100),
    "checkpoints_kept": ("Checkpoints kept", (1, 2, 3, 5, 10), 2),
    "kept_days": ("Days the disk is kept afterwards", (0, 1, 7, 30, 90, 365), 0),
    "interruptions_per_hour": ("Interruptions per hour", (0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1), INTERRUPTIONS_PER_HOUR.value),
}  # fmt: skip
_WHOLE = ("interruptions_per_hour",)
_NUMBERS = {"deadline_hours": "Done within (hours)", "budget_usd": "For at most (US dollars)"}
_SWITCHES = {
    "spot": "Spot machines", "persistent_storage": "Storage survives a stop", "free_egress": "No fee for what leaves",
    "fine_billing": "Billed by second or minute", "ssh": "SSH", "docker": "Own Docker images", "jupyter": "Jupyter",
    "several_nodes": "Machines are connected", "prepare_on_gpu": "Data are prepared on the rented machine",
}  # fmt: skip
_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Data", ("examples", "tokens_per_example", "epochs", "global_batch_size", "evaluation_examples")),
    ("Checkpoints and disk", ("checkpoint_steps", "checkpoints_kept", "disk", "kept_days")),
    ("Limits", ("deadline_hours", "budget_usd", "spot", "interruptions_per_hour")),
    ("The provider has", ("provider", *list(_SWITCHES)[1:-1])),
)


class OfferControls(widgets.VBox):
    """The controls; their values are the only state. `on_change` is called after each change that a user makes."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change, self._quiet, self._language = on_change, False, "en"
        self.by_field: dict[str, widgets.Widget] = {}
        self.error = widgets.HTML()
        self.error.add_class("planner-error")
        self._values = {field: values for field, (_, values, _) in _SLIDERS.items()}
        self._data: Profile | None = None
        self._kept = (StoragePolicy(), SpotTerms(), Wishes())  # what no control shows, of a plan that was opened
        for field, (_, values, value) in _SLIDERS.items():
            self.by_field[field] = widgets.SelectionSlider(options=values, value=value)
        for field in _NUMBERS:
            self.by_field[field] = widgets.Text(placeholder="–", continuous_update=False)
        for field in _SWITCHES:
            self.by_field[field] = widgets.Checkbox(value=False, indent=False)
        self.by_field["disk"] = widgets.Dropdown(options=list(DISK_BYTES_PER_S))
        self.by_field["provider"] = widgets.Dropdown(options=[("", "")])
        self.stages = {name: widgets.Text(placeholder="–", continuous_update=False) for name in STAGES}
        self._titles = [widgets.HTML() for _ in _GROUPS]
        groups = []
        for title, (_, fields) in zip(self._titles, _GROUPS, strict=True):
            groups.append(box("planner-group", title, *(self.by_field[field] for field in fields)))
        columns = widgets.HBox(groups)
        columns.add_class("planner-groups")
        stages = widgets.HBox([self.by_field["prepare_on_gpu"], *self.stages.values()])
        stages.add_class("planner-groups")
        self._stages = widgets.Accordion([stages], selected_index=None)
        super().__init__([columns, self._stages, self.error])
        for control in (*self.by_field.values(), *self.stages.values()):
            control.observe(self._changed, names="value")

    def _changed(self, _change: Any) -> None:
        if not self._quiet:
            self._on_change()

    def demand(self, job: Job) -> Demand:
        """The job with all that is asked for. Raises InvalidJob."""
        value = {field: control.value for field, control in self.by_field.items()}
        workload = Workload(**{field: value[field] for field in Workload.model_fields})
        policy, terms, _ = self._kept
        policy = policy.model_copy(update={field: value[field] for field in StoragePolicy.model_fields if field in value})
        if self._data and workload.examples == self._data.rows:  # else another amount of data is tried
            policy = self._data.storage_policy(policy)
        changed = tuple(
            (name, 60 * number) for name, control in self.stages.items() if (number := _number(control, name)) is not None
        )
        terms = terms.model_copy(update={"interruptions_per_hour": value["interruptions_per_hour"]})
        return Demand(job, workload, policy, terms, changed, value["prepare_on_gpu"])

    def use_data(self, profile: Profile) -> None:
        """Put the rows and the mean length of measured data on their sliders, each as a value of its own, without telling anyone."""
        self._data, work = profile, profile.workload()
        for field, value in (("examples", work.examples), ("tokens_per_example", work.tokens_per_example)):
            self._slide(field, value)

    def _slide(self, field: str, value: float) -> None:
        """Put a slider on a value, which becomes one of its own, without telling anyone."""
        self._values[field] = tuple(sorted({*_SLIDERS[field][1], value}))
        self._quiet = True
        self.by_field[field].options, self.by_field[field].value = self._shown(field), value
        self._quiet = False

    def show(self, plan: PlanFile) -> None:
        """Set the controls to a plan that was opened, without telling anyone."""
        self._data, self._kept = None, (plan.policy, plan.terms, plan.wishes)
        for field in _SLIDERS:
            record = next(part for part in (plan.workload, plan.policy, plan.terms) if hasattr(part, field))
            self._slide(field, getattr(record, field))
        self._quiet = True
        for field in _NUMBERS:
            self.by_field[field].value = _typed(getattr(plan.wishes, field))
        for field in _SWITCHES:
            self.by_field[field].value = getattr(plan if field == "prepare_on_gpu" else plan.wishes, field)
        self.by_field["disk"].value = plan.policy.disk
        self.by_field["provider"].value = plan.wishes.providers[0] if len(plan.wishes.providers) == 1 else ""
        for name, control in self.stages.items():
            control.value = _typed(dict(plan.changed_stages).get(name), 60)
        self._quiet = False

    def _shown(self, field: str) -> list[tuple[str, float]]:
        decimals = 3 if field in _WHOLE else 0
        return [(format_number(value, decimals, language=self._language), value) for value in self._values[field]]

    def wishes(self) -> Wishes:
        """What an offer must have. Raises InvalidJob."""
        asked: dict[str, Any] = {field: self.by_field[field].value for field in _SWITCHES if field in Wishes.model_fields}
        asked |= {field: _number(self.by_field[field], _NUMBERS[field]) for field in _NUMBERS}
        kept, provider = self._kept[2], self.by_field["provider"].value
        providers = (provider,) if provider else kept.providers if len(kept.providers) > 1 else ()
        return Wishes(**({name: getattr(kept, name) for name in Wishes.model_fields} | asked | {"providers": providers}))

    def say(self, problem: str) -> None:
        """One sentence below the controls, or none."""
        self.error.value = f'<span role="alert">{escape(problem)}</span>' if problem else ""

    def translate(self, language: str) -> None:
        """Labels and choices in one language; values stay."""
        self._quiet, self._language = True, language
        for title, (text, _) in zip(self._titles, _GROUPS, strict=True):
            title.value = f"<h3>{escape(translated(text, language))}</h3>"
        labels = {field: label for field, (label, _, _) in _SLIDERS.items()} | _NUMBERS | _SWITCHES
        for field, label in (labels | {"disk": "Written to", "provider": "Provider"}).items():
            self.by_field[field].description = translated(label, language)
        for field in _SLIDERS:
            relabel(self.by_field[field], self._shown(field))
        for field, options in (
            ("disk", [(translated(name, language), name) for name in DISK_BYTES_PER_S]),
            ("provider", [(translated("any", language), ""), *((row.name, row.id) for row in load_providers().values())]),
        ):
            relabel(self.by_field[field], options)
        for name, control in self.stages.items():
            control.description = translated(name, language)
        self._stages.set_title(0, translated("Times of single stages, in minutes", language))
        self._quiet = False


def _typed(value: float | None, unit: float = 1) -> str:
    """A number as one would type it; nothing for none."""
    return "" if value is None else repr(value / unit)


def _number(control: widgets.Text, name: str) -> float | None:
    """What was typed, with a point or a comma; None where nothing was."""
    text = control.value.strip().replace(",", ".")
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidJob("{name} is {given}; it must be a number", field=name, name=name, given=repr(text[:40])) from None
