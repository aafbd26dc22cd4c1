"""Records side by side: those that a visitor brings, and the owner's own pilots."""

from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path

import ipywidgets as widgets

from planner.errors import PlannerError
from planner.job import Job
from planner.pilot.compare import card_of
from planner.pilot.record import read_measurement
from planner.pilot.run import find_runs
from planner.planfile import PlanFile
from planner.record import Experiment, experiment_of, record_from_json
from planner.record.diff import changes, outcomes
from planner.record_views import changes_table, outcomes_table, runs_table
from planner.texts import translated
from planner.workbook.file_input import FileInput
from planner.workbook.page_html import table_html
from planner.workbook.plan_view import MOST_BYTES

__all__ = ["RunsCard"]

_MOST_FILES = 20


class RunsCard(widgets.VBox):
    """A table of records, and what changed between the last two. `own` shows the pilots in `runs` too, which only an owner may see."""

    def __init__(self, *, language: str, own: bool = False, runs: Path = Path("runs")) -> None:
        self._language, self._runs = language, runs if own else None
        self._brought: list[tuple[str, Experiment]] = []
        self._own: list[tuple[str, Experiment]] = []
        self.heading, self.error, self.table = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.error.add_class("planner-error")
        self.upload = FileInput(self._on_file, accept=".json", most_bytes=MOST_BYTES)
        super().__init__([self.heading, self.upload, self.error, self.table])
        self.add_class("planner-card")
        self.look()
        self.translate(language)

    def look(self) -> None:
        """Read the owner's pilots; one that cannot be read is left out."""
        self._own = []
        for run in find_runs(self._runs)[:_MOST_FILES] if self._runs else ():
            with suppress(PlannerError):
                found = read_measurement(run.folder / "measurement.json")
                plan, gpu = PlanFile(job=Job(**found.job), pilot=found), card_of(found)
                self._own.append((run.folder.name, experiment_of(plan.changed(gpu=gpu.id) if gpu else plan)))
        self._draw()

    def _on_file(self, name: str, content: bytes | None) -> None:
        self.error.value = ""
        try:
            if content is None:
                raise PlannerError("{path!r} is larger than a plan or record can be", path=name)
            self._brought = [*self._brought, (name, record_from_json(content, name))][-_MOST_FILES:]
        except PlannerError as error:
            self.error.value = f'<span role="alert">{escape(error.text(self._language))}</span>'
        self._draw()

    def translate(self, language: str) -> None:
        """Everything in one language."""
        self._language = language
        say = partial(translated, language=language)
        hint = say("Records that planner record make has written; the last two are compared. They stay in this page.")
        self.heading.value = f'<h2>{escape(say("Runs side by side"))}</h2><p class="planner-hint">{escape(hint)}</p>'
        self.upload.description = say("Add a record")
        self._draw()

    def _draw(self) -> None:
        language, shown = self._language, [*self._own, *self._brought]
        if not shown:
            self.table.value = ""
            return
        captions = [translated(text, language) for text in ("Runs", "What changed between the last two", "What it came to")]
        tables = [runs_table(shown, language)]
        if len(shown) > 1:
            a, b = shown[-2][1], shown[-1][1]
            tables += [changes_table(changes(a, b), language), outcomes_table(outcomes(a, b), language)]
        self.table.value = "".join(
            table_html(table, language, caption=caption) for table, caption in zip(tables, captions, strict=False)
        )
