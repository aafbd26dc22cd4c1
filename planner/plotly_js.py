"""plotly.js as the charts need it, out of the installed plotly package."""

import re
from importlib.util import find_spec
from pathlib import Path

__all__ = ["plotly_js"]

# The full library registers 47 kinds of trace (bar is the first; scatter is built in). Setting up the other 46, maps and
# WebGL among them, takes two thirds of the time it needs to start, so they are left unregistered.
_REGISTER = re.compile(r"\.register\(\[(\w+\(\))(?:,\w+\(\)){20,}\]\)")


def plotly_js() -> str:
    """The source, with bar and scatter only; whole where it is not built as expected."""
    package = find_spec("plotly")  # finds the folder without importing it
    assert package is not None
    assert package.origin is not None
    source = (Path(package.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return _REGISTER.sub(r".register([\1])", source, count=1)
