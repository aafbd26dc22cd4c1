"""The workbook's pilot: choose what it does, start it, watch its steps, end it, and see the plan beside what was measured."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Literal

import ipywidgets as widgets

from planner.dryrun.process import dry_run_in_process
from planner.errors import PlannerError
from planner.job import Job
from planner.pilot.calibrate import Calibration
from planner.pilot.compare import card_of
from planner.pilot.record import Measurement
from planner.pilot.run import GRACE_S, Run, devices, find_runs, missing_packages, start
from planner.pilot_views import loss_chart, progress_text
from planner.plan import Plan
from planner.texts import translated
from planner.workbook.chart import Chart
from planner.workbook.pilot_comparison import PilotComparison
from planner.workbook.pilot_controls import PilotControls

__all__ = ["PilotCard"]

ENDING = "the pilot has been asked to end; it is ended by force if it does not within {seconds} s"
COMPARING = "the dry run of the same job, for the comparison"
_PERIOD_S = 0.4  # between two looks at the log


class PilotCard(widgets.VBox):
    """One pilot at a time, in a process that outlives this kernel; one that is still running in `runs` is taken up again.

    `folder` is what it may read rows and trained weights from; without one there are neither.

    Without a GPU the same code runs on the processor, for trying: it measures no GPU memory, and says so.
    """

    def __init__(
        self,
        plan: Callable[[], Plan],
        *,
        language: str,
        runs: Path = Path("runs"),
        folder: Path | None = None,
        steps: int = 20,
        on_use: Callable[[Calibration | None], None] = lambda calibration: None,
        on_measured: Callable[[Measurement], None] = lambda found: None,
    ) -> None:
        self._on_measured = on_measured
        self._plan, self._language, self._runs = plan, language, runs
        self._cards, self._missing = devices(), missing_packages()
        self._run: Run | None = None
        self._events: list[dict[str, Any]] = []
        self._problem: PlannerError | None = None
        self._tell = ""  # what is being done when the pilot is over
        self._task: asyncio.Task[None] | None = None
        if folder and not folder.is_dir():
            self._problem = PlannerError("the folder {folder!r} that pilots may read is not there", folder=str(folder))
        self.controls = PilotControls(folder, steps=steps)
        self.heading, self.status = widgets.HTML(), widgets.HTML()
        self.status.add_class("planner-live")
        self.start, self.cancel = widgets.Button(button_style="primary"), widgets.Button()
        self.start.on_click(self._on_start)
        self.cancel.on_click(self._on_cancel)
        self.chart = Chart(height=260)
        self.chart.layout.display = "none"
        actions = widgets.HBox([] if self._missing else [self.start, self.cancel, self.status])
        actions.add_class("planner-actions")
        self.comparison = PilotComparison(on_use)
        super().__init__([self.heading, *([] if self._missing else [self.controls]), actions, self.chart, self.comparison])
        self.add_class("planner-card")
        self._take_up()
        self.translate(language)

    def translate(self, language: str) -> None:
        """Everything in one language."""
        self._language = language
        say = partial(translated, language=language)
        self.start.description, self.cancel.description = say("Start the pilot"), say("Cancel")
        if self._missing:
            needed = say("a pilot needs {packages}: pip install 'finetune-planner[pilot]'")
            text = needed.format(packages=", ".join(self._missing))
        elif self._cards:
            text = say("Real steps of this job on {cards}; random weights take the same bytes as trained ones.")
            text = text.format(cards=", ".join(self._cards))
        else:
            text = say("No GPU is attached: the pilot runs on the processor, for trying, and measures no GPU memory.")
        self.heading.value = f'<h2>{escape(say("Pilot"))}</h2><p class="planner-hint">{escape(text)}</p>'
        self.controls.translate(language)
        self.comparison.translate(language)
        self._draw()

    def _take_up(self) -> None:
        """Follow a pilot that an earlier kernel has started; the newest one also where it ended while no kernel was looking."""
        runs = find_runs(self._runs)
        self._run = next((run for run in runs if run.running), next((run for run in runs[:1] if not run.finished), None))
        if self._run:
            self._follow()

    def _on_start(self, _button: widgets.Button) -> None:
        if self._tell or (self._run and self._run.running):  # a second click may be on its way already
            return
        self._problem = None
        try:
            plan = self._plan()
            shared = replace(plan.sharding, divided_base=False) if plan.sharding else None  # 4-bit weights are stored as integers
            device: Literal["cuda", "cpu"] = "cuda" if self._cards else "cpu"
            self._run = start(plan.job, self._runs, device=device, sharding=shared, **self.controls.request())
        except PlannerError as error:
            self._problem = error
            self._draw()
            return
        self._draw()
        self._follow()

    def _on_cancel(self, _button: widgets.Button) -> None:
        if self._run:
            self._tell = ENDING
            asyncio.get_running_loop().run_in_executor(None, self._run.cancel)
            self._draw()

    def _follow(self) -> None:
        try:
            self._task = asyncio.get_running_loop().create_task(self.watch())
        except RuntimeError:  # no event loop: whoever made this watches by itself
            self._draw()

    async def watch(self) -> None:
        """Read the log a few times a second until the pilot is over, then write its record and compare."""
        run = self._run
        assert run
        while True:
            running = run.running
            self._events = run.events()
            self._draw()
            if not running:
                break
            await asyncio.sleep(_PERIOD_S)
        self._tell = ""
        try:
            found = run.finish()
        except PlannerError as error:
            self._problem = error
            self._draw()
            return
        self.comparison.show(found)
        self._on_measured(found)
        self._draw()
        gpu = card_of(found)
        if gpu and not found.sharding and found.state != "cancelled":  # after the pilot: beside it, it would slow the steps down
            self._tell = COMPARING
            self._draw()
            with suppress(PlannerError):  # of a job or of libraries that the dry run does not know
                self.comparison.show(found, await dry_run_in_process(Job(**found.job), gpu))
            self._tell = ""
            self._draw()

    def _draw(self) -> None:
        running = bool(self._run and self._run.running)
        self.start.disabled = running or bool(self._tell)
        self.controls.enable(not self.start.disabled)
        self.cancel.layout.display = None if running else "none"
        if self._problem:
            self.status.value = f'<p class="planner-error">{escape(self._problem.text(self._language))}</p>'
            return
        text = progress_text(self._events, self._language) if self._events else ""
        if self._tell:
            text = translated(self._tell, self._language).format(seconds=int(GRACE_S)) + " …"
        self.status.value = f'<p class="planner-hint">{escape(text)}</p>' if text else ""
        losses = [event["loss"] for event in self._events if event["event"] == "step"]
        if losses:
            figure = loss_chart(losses, self._language)
            self.chart.layout.display = None
            self.chart.alt, self.chart.spec = figure.alt, figure.spec
