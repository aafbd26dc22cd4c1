"""The workbook app, and a way to show one figure, for notebooks."""

from planner.figures import Figure
from planner.workbook.app import Workbook
from planner.workbook.chart import Chart

__all__ = ["Workbook", "show"]


def show(figure: Figure) -> Chart:
    """The figure as a chart of its own, in the colours of the page that it is shown on."""
    return Chart(figure.spec, alt=figure.alt, height=400)
