"""The workbook's dry run: a button, what it is doing, and then the chart of memory through the step beside the closed form."""

import asyncio
from collections.abc import Callable
from functools import partial
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as widgets

from planner.errors import PlannerError
from planner.plan import Plan
from planner.sentences import cards_text, method_name
from planner.texts import translated
from planner.units import format_number
from planner.workbook.chart import Chart
from planner.workbook.page_html import box, legend_html, pill, table_html

if TYPE_CHECKING:
    from planner.dryrun.summary import DryRunSummary

__all__ = ["DryRunCard"]

CANCELLED = "cancelled"


class DryRunCard(widgets.VBox):
    """One dry run at a time, in a process of its own; `plan` gives the plan to run when the button is pressed.

    A result stays when the controls change, and then says which settings it belongs to. What draws it is imported with the
    first one.
    """

    def __init__(self, plan: Callable[[], Plan], *, language: str) -> None:
        from planner.dryrun import missing_packages

        self._plan, self._language, self._missing = plan, language, missing_packages()
        self._found: tuple[Plan, DryRunSummary] | None = None
        self._message: PlannerError | str = ""  # what is being done, or went wrong
        self._task: asyncio.Task[None] | None = None
        self.heading, self.status, self.result, self.legend, self.instants, self.components = (widgets.HTML() for _ in range(6))
        self.status.add_class("planner-live")
        self.start, self.cancel = widgets.Button(button_style="primary"), widgets.Button()
        self.start.on_click(self._on_start)
        self.cancel.on_click(self._on_cancel)
        self.chart: Chart | None = None
        actions = widgets.HBox([] if self._missing else [self.start, self.cancel, self.status])
        actions.add_class("planner-actions")
        self._head = (self.heading, actions)
        super().__init__(self._head)
        self.add_class("planner-card")
        self._running(False)
        self.translate(language)

    def translate(self, language: str) -> None:
        """Everything in one language."""
        self._language = language
        say = partial(translated, language=language)
        self.start.description, self.cancel.description = say("Dry run"), say("Cancel")
        if self._missing:
            line = "A dry run needs packages that are missing here ({packages}): pip install 'finetune-planner[pilot]'"
            text = say(line).format(packages=", ".join(self._missing))
        else:
            text = say("The job's real training step on tensors without data: no GPU and no weights, about half a minute.")
        self.heading.value = f'<h2>{escape(say("Dry run"))}</h2><p class="planner-hint">{escape(text)}</p>'
        self._say(self._message)
        self._draw()

    def settings_changed(self) -> None:
        """Say whether the result belongs to the controls as they stand."""
        if self._found:
            self._draw_sentences()

    def _on_start(self, _button: widgets.Button) -> None:
        if self._task is None or self._task.done():  # a second click may be on its way already
            self._task = asyncio.get_running_loop().create_task(self.run())

    def _on_cancel(self, _button: widgets.Button) -> None:
        if self._task:
            self._task.cancel()

    async def run(self) -> None:
        """Run the plan as it stands and show what was found, or the sentence that says why not."""
        from planner.dryrun.process import dry_run_in_process

        self._running(True)
        message: PlannerError | str = CANCELLED
        try:
            plan = self._plan()
            self._found = plan, await dry_run_in_process(plan.job, plan.gpu, self._say, sharding=plan.sharding)
            message = ""
            self._draw()
        except PlannerError as error:
            message = error
        finally:
            self._running(False)
            self._say(message)

    def _running(self, running: bool) -> None:
        self.start.disabled = running
        self.cancel.layout.display = None if running else "none"

    def _say(self, message: PlannerError | str) -> None:
        self._message = message
        if isinstance(message, PlannerError):
            self.status.value = f'<p class="planner-error">{escape(message.text(self._language))}</p>'
        else:
            text = translated(message, self._language) + (" …" if self.start.disabled else "")
            self.status.value = f'<p class="planner-hint">{escape(text)}</p>'

    def _draw(self) -> None:
        if self._found is None:
            return
        from planner.comparison import components_table, instants_table
        from planner.timeline import memory_timeline

        (plan, found), language = self._found, self._language
        figure = memory_timeline(found, plan.gpu, language)
        if self.chart is None:
            self.chart = Chart(height=420)
            tables = box("planner-columns", self.instants, self.components)
            self.children = (*self._head, self.result, self.legend, self.chart, tables)
        self.chart.alt, self.chart.spec = figure.alt, figure.spec
        self.legend.value = legend_html(figure)
        say = partial(translated, language=language)
        instants, components = instants_table(plan, found, language), components_table(plan, found, language)
        self.instants.value = table_html(instants, language, caption=say("Closed form and dry run, instant by instant"))
        self.components.value = table_html(components, language, caption=say("What is alive at the dry run's peak"))
        self._draw_sentences()

    def _draw_sentences(self) -> None:
        from planner.comparison import dry_verdict_text, peak_text, run_text

        assert self._found
        (plan, found), language = self._found, self._language
        self.result.value = (
            f"{self._belongs_to(plan)}<p>{pill(found.verdict, language)} {escape(dry_verdict_text(plan, found, language))} "
            f'{escape(peak_text(plan, found, language))}</p><p class="planner-hint">{escape(run_text(plan, found, language))}</p>'
        )

    def _belongs_to(self, plan: Plan) -> str:
        """A caveat where the controls have moved on since the run."""
        try:
            now = self._plan()
            if (now.job, now.gpu, now.sharding) == (plan.job, plan.gpu, plan.sharding):
                return ""
        except PlannerError:  # what stands there now is no job at all
            pass
        line = "The settings have changed since; this is the dry run of {model}, {method}, {batch} x {length} tokens, on {gpu}."
        text = translated(line, self._language).format(
            model=plan.job.architecture.name, method=method_name(plan.job, self._language), gpu=cards_text(plan, self._language),
            batch=plan.job.micro_batch_size, length=format_number(plan.job.sequence_length, language=self._language),
        )  # fmt: skip
        return f'<p class="planner-earlier">{escape(text)}</p>'
