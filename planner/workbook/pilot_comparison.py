"""What a pilot measured beside what was predicted: the verdict, three bars per component, the table, and a button that calibrates the plan."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as widgets

from planner.errors import PlannerError
from planner.pilot.calibrate import Calibration, calibrated
from planner.pilot.compare import Compared, compared, verdict
from planner.pilot.record import Measurement
from planner.pilot_views import calibration_table, cause_texts, comparison_table, components_chart, found_sentences
from planner.sentences import note_text
from planner.texts import translated
from planner.workbook.chart import Chart
from planner.workbook.page_html import legend_html, table_html

if TYPE_CHECKING:
    from planner.dryrun.summary import DryRunSummary

__all__ = ["PilotComparison"]


class PilotComparison(widgets.VBox):
    """Empty until `show`. `on_use` is given the calibration when its button is pressed, and None when it is taken back."""

    def __init__(self, on_use: Callable[[Calibration | None], None]) -> None:
        self._on_use, self._language = on_use, "en"
        self._found: Measurement | None = None
        self._rows: list[Compared] = []
        self._calibration: Calibration | None = None
        self._used: Calibration | None = None  # that the plan has now; the next pilot adds to it
        self.result, self.legend, self.table, self.assumptions = (widgets.HTML() for _ in range(4))
        self.chart, self.use = Chart(height=340), widgets.Button(layout={"align_self": "flex-start"})
        self.use.on_click(self._on_click)
        super().__init__([self.result, self.legend, self.chart, self.table, self.assumptions, self.use])
        self.add_class("planner-parts")
        self._draw()

    def show(self, found: Measurement, dry_run: "DryRunSummary | None" = None) -> None:
        """Compare a record with its predictions, and with a dry run where there is one."""
        if found is not self._found:
            self._calibration = None
            with suppress(PlannerError):  # a processor, or a run that did not go through
                self._calibration = calibrated(found, self._used and self._used.memory, self._used and self._used.speed)
        self._found, self._rows = found, compared(found, dry_run=dry_run)
        self._draw()

    def translate(self, language: str) -> None:
        """Everything in one language."""
        self._language = language
        self._draw()

    def _on_click(self, _button: widgets.Button) -> None:
        self._used = None if self._used is self._calibration else self._calibration
        self._on_use(self._used)
        self._draw()

    def _draw(self) -> None:
        found, rows, language = self._found, self._rows, self._language
        self.layout.display = None if found else "none"
        if found is None:
            return
        say = partial(translated, language=language)
        sentence = note_text(verdict(found, rows), language)
        self.result.value = f'<p aria-live="polite"><strong>{escape(sentence)}</strong></p>'
        self.chart.layout.display = None if rows else "none"
        if rows:
            figure = components_chart(rows, sentence, language)
            self.chart.alt, self.chart.spec = figure.alt, figure.spec
            self.legend.value = legend_html(figure)
            causes = "".join(f"<li>{escape(text)}</li>" for text in cause_texts(rows, language))
            table = table_html(comparison_table(rows, language), language, caption=say("The plan beside the pilot"))
            self.table.value = table + (f'<ul class="planner-advice">{causes}</ul>' if causes else "")
        self.result.value += "".join(f"<p>{escape(text)}</p>" for text in found_sentences(found, language))
        self._draw_calibration(self._calibration)

    def _draw_calibration(self, calibration: Calibration | None) -> None:
        say = partial(translated, language=self._language)
        self.use.layout.display = None if calibration and calibration.useful else "none"
        self.use.description = say("Use the published figures again" if self._used is calibration else "Use these in the plan")
        if calibration is None:
            self.assumptions.value = ""
            return
        table = calibration_table(calibration, self._language)
        self.assumptions.value = table_html(
            table, self._language, caption=say("What this pilot says about the plan's assumptions")
        )
