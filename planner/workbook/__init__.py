"""The workbook app, and a way to show one figure, for notebooks."""

from planner.figures import Figure
from planner.workbook.app import Workbook
from planner.workbook.chart import Chart

__all__ = ["Workbook", "show"]


def show(figure: Figure) -> Chart:
    """The figure as a chart of its own, with a legend, in the colours of the page that it is shown on."""
    legend = {"showlegend": True, "legend": {"orientation": "h", "traceorder": "normal", "y": -0.18}}
    layout = {**figure.spec["layout"], **legend, "margin": {"b": 90}}
    return Chart({**figure.spec, "layout": layout}, alt=figure.alt, height=440)
