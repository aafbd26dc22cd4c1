"""What the browser needs beside ipywidgets: charts drawn by plotly.js, and a page that knows its language.

A chart is a plain plotly dict, so the kernel never imports plotly: only plotly.js is taken from the installed package.
"""

import gzip
from pathlib import Path
from typing import Any

from anywidget import AnyWidget
from traitlets import Dict, Int, Unicode

from planner.plotly_js import plotly_js

__all__ = ["Chart", "Page"]

_HERE = Path(__file__).parent
_TOKENS = (_HERE / "tokens.css").read_text(encoding="utf-8")


class Chart(AnyWidget):
    """One plot. `spec` is plotly JSON (data, layout); a colour may be written `var(--planner-weights)`.

    `alt` is the sentence that a screen reader reads instead. The page asks for plotly.js once, however many charts it has.
    """

    _esm = _HERE / "chart.js"
    _css = _TOKENS

    spec = Dict().tag(sync=True)
    alt = Unicode().tag(sync=True)
    height = Int(360).tag(sync=True)

    def __init__(self, spec: dict[str, Any] | None = None, **traits: Any) -> None:
        super().__init__(spec=spec or {}, **traits)
        self.on_msg(self._send_plotly)

    def _send_plotly(self, _widget: object, message: object, _buffers: object) -> None:
        if message == "plotly":  # gzip 1: 4.8 MB become 1.7 MB in 0.1 s
            self.send("plotly", [gzip.compress(plotly_js().encode(), 1)])


class Page(AnyWidget):
    """Put it into `.planner-app` once: it brings the style sheet, tells the page its language, names the sliders, says when no kernel answers.

    `texts` are the words for that, by state (busy, apart, gone) and for the button (reload).
    `link` is the query string that restores what is shown; in Voila it becomes the page's address, so that a reload keeps it.
    """

    _esm = _HERE / "page.js"
    _css = _TOKENS + (_HERE / "style.css").read_text(encoding="utf-8")

    language = Unicode("en").tag(sync=True)
    title = Unicode().tag(sync=True)
    link = Unicode().tag(sync=True)
    texts = Dict().tag(sync=True)
