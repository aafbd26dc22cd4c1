"""From plan to run: the five steps with their states, the plan as a file, a link, a report, exports, and records side by side."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from html import escape
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import ipywidgets as widgets

from planner.dataset import Profile
from planner.errors import PlannerError
from planner.export import TARGETS, export
from planner.files import versioned
from planner.five_steps import STEPS, Step, confirm, five_steps
from planner.permalink import link_of
from planner.pilot.record import Measurement, measurement_from_json
from planner.plan import compared_plans
from planner.plan_views import STATES, STEP_NAMES, checklist_table, copies_table, criteria_table, settings_table, step_texts
from planner.planfile import VERSION, PlanFile, data_version, plan_from_json, plan_text
from planner.report_page import report_html
from planner.tables import methods_table
from planner.texts import translated
from planner.workbook.file_input import FileInput
from planner.workbook.page_html import box, folded, table_html
from planner.workbook.plan_controls import PlanControls

__all__ = ["MOST_BYTES", "PlanView"]

MOST_BYTES = 4_000_000  # of a plan or record that a visitor brings
_SIGNS = {"open": ("○", ""), "ready": ("◐", "planner-tight"), "passed": ("✓", "planner-good"), "failed": ("✕", "planner-bad")}


class PlanView(widgets.VBox):
    """`plan` gives the job, its card, workload and wishes as fields of a plan; what is written down here is added to them.

    `on_open` is told of a plan that was opened, `on_change` of one that was changed here.
    """

    def __init__(
        self, plan: Callable[[], Mapping[str, Any]], base: PlanFile, *, language: str,
        on_open: Callable[[PlanFile], None], on_change: Callable[[], None],
    ) -> None:  # fmt: skip
        self._plan, self._language, self._on_open, self._on_change = plan, language, on_open, on_change
        self.controls = PlanControls(self._changed, base)
        self.confirmed, self.pilot = base.confirmed, base.pilot
        self.error, self.heading, self.files, self.care = (widgets.HTML() for _ in range(4))
        self.error.add_class("planner-error")
        self.titles = {name: widgets.HTML() for name in STEPS}
        self.confirm = {name: widgets.Button() for name in STEPS if name != "pilot"}
        for name, button in self.confirm.items():
            button.on_click(partial(self._on_confirm, name))
        self.upload = FileInput(self._on_file, accept=".json", most_bytes=MOST_BYTES)
        self.report = widgets.Button()
        self.report.on_click(self._on_report)
        self.target, self.export = widgets.Dropdown(options=list(TARGETS)), widgets.Button()
        self.export.on_click(self._on_export)
        self.made = widgets.HTML()
        rows = [widgets.HBox([self.files, self.upload, self.report]), widgets.HBox([self.target, self.export, self.made])]
        for row in rows:
            row.add_class("planner-actions")
        cards = [box("planner-card", self.heading, self.error, *rows)]
        for name in STEPS:
            parts = [self.titles[name], *([self.controls.boxes[name]] if name in self.controls.boxes else [])]
            parts += [self.care, self.controls.deletions] if name == "delivery" else []
            cards.append(box("planner-card", *parts, *([self.confirm[name]] if name in self.confirm else [])))
        super().__init__(cards)
        self.add_class("planner-steps")
        self.translate(language)

    def plan_file(self) -> PlanFile:
        """All of the workbook as one plan. Raises PlannerError."""
        base = self.controls.base
        kept = {name: getattr(base, name) for name in PlanFile.model_fields}
        return PlanFile(
            **(kept | dict(self._plan()) | self.controls.values() | {"confirmed": self.confirmed, "pilot": self.pilot})
        )

    def show(self, plan: PlanFile) -> None:
        """Set what is written down to a plan that was opened."""
        self.controls.show(plan)
        self.confirmed, self.pilot = plan.confirmed, plan.pilot
        self.made.value = ""

    def measured(self, pilot: Measurement) -> None:
        """Hold the fourth step against what a pilot measured."""
        self.pilot = pilot
        self._changed()

    def use_data(self, profile: Profile) -> None:
        """Name the data by what was measured of them."""
        base = self.controls.base
        self.controls.show(base.changed(**(self.controls.values() | {"data": data_version(profile)})))

    def translate(self, language: str) -> None:
        """Everything in one language."""
        self._language = language
        say = partial(translated, language=language)
        self.heading.value = (
            f"<h2>{escape(say('From plan to run'))}</h2><p class='planner-hint'>"
            f"{escape(say('Five steps, in one file. Nothing of it is stored here: save the file, or keep the link.'))}</p>"
        )
        self.upload.description, self.report.description = say("Open a plan or a pilot's record"), say("Make the report")
        self.target.description, self.export.description = say("For"), say("Make the training files")
        for button in self.confirm.values():
            button.description = say("Confirm this step")
        self.controls.translate(language)

    def draw(self) -> None:
        """The states of the steps as the plan stands; what is wrong is said above them, and the last good page stays."""
        try:
            plan = self.plan_file()
        except PlannerError as error:
            self._say(error)
            return
        self.error.value = ""
        language = self._language
        for number, step in enumerate(five_steps(plan), 1):
            sign, colour = _SIGNS[step.state]
            state = escape(translated(STATES[step.state], language))
            pill = f'<span class="planner-pill {colour}"><span aria-hidden="true">{sign}</span>{state}</span>'
            title = escape(translated(STEP_NAMES[step.name], language))
            notes = "".join(f'<p class="planner-hint">{escape(text)}</p>' for text in step_texts(step, language))
            self.titles[step.name].value = f"<h2>{number}. {title} {pill}</h2>{notes}{self._table_of(plan, step)}"
            if step.name in self.confirm:
                self.confirm[step.name].disabled = step.state != "ready"
        tables = (("Care for the data", checklist_table), ("Where copies arise", copies_table))
        self.care.value = "".join(
            folded(caption, table_html(table(plan, language), language, caption=caption))
            for caption, table in ((translated(title, language), table) for title, table in tables)
        )
        self.files.value = _anchor(
            "plan.json", "application/json", plan_text(plan), translated("Save the plan", language)
        ) + self._link(plan)

    def _table_of(self, plan: PlanFile, step: Step) -> str:
        """What a step is about: the methods side by side, the numbers that are fixed, the criteria with what was measured."""
        language = self._language
        if step.name == "method":
            table, caption = methods_table(compared_plans(plan.plan), language), "The methods side by side"
        elif step.name == "settings":
            table, caption = settings_table(plan, language), "What is run"
        elif step.criteria:
            table, caption = criteria_table(step.criteria, language), "Criteria"
        else:
            return ""
        return table_html(table, language, caption=translated(caption, language))

    def _link(self, plan: PlanFile) -> str:
        try:
            link = link_of(plan)
        except PlannerError as error:
            return f'<p class="planner-hint">{escape(error.text(self._language))}</p>'
        return f' <a class="planner-link" href="?plan={link}">{escape(translated("Link to this plan", self._language))}</a>'

    def _say(self, error: PlannerError) -> None:
        self.error.value = f'<span role="alert">{escape(error.text(self._language))}</span>'

    def _changed(self) -> None:
        self.made.value = ""
        self.draw()
        self._on_change()

    def _on_confirm(self, name: str, _button: widgets.Button) -> None:
        try:
            self.confirmed = confirm(self.plan_file(), name).confirmed
        except PlannerError as error:
            self._say(error)
            return
        self._changed()

    def _on_report(self, _button: widgets.Button) -> None:
        try:
            page = report_html(self.plan_file(), datetime.now(UTC).date(), self._language)
        except PlannerError as error:
            self._say(error)
            return
        self.made.value = _anchor("report.html", "text/html", page, translated("Save the report", self._language))

    def _on_export(self, _button: widgets.Button) -> None:
        try:
            files = export(self.plan_file(), self.target.value)
        except PlannerError as error:
            self._say(error)
            return
        packed = BytesIO()
        with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        text = translated("Save the training files", self._language)
        self.made.value = _anchor(f"{self.target.value}.zip", "application/zip", packed.getvalue(), text)

    def _on_file(self, name: str, content: bytes | None) -> None:
        try:
            if content is None:
                raise PlannerError("{path!r} is larger than a plan or record can be", path=name)
            if "steps_asked" in versioned(content, name, VERSION):  # a pilot's measurement.json
                self.measured(measurement_from_json(content, name))
                return
            plan = plan_from_json(content, name=name)
        except PlannerError as error:
            self._say(error)
            return
        self._on_open(plan)


def _anchor(name: str, kind: str, content: str | bytes, text: str) -> str:
    """A link that saves `content`, which it holds itself: nothing is written on the server."""
    data = b64encode(content.encode() if isinstance(content, str) else content).decode()
    return f'<a class="planner-link" download="{name}" href="data:{kind};base64,{data}">{escape(text)}</a>'
