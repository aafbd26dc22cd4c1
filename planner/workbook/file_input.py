"""A button that brings a visitor's file into the kernel, up to a size; ipywidgets' own sends any, and a large one ends the session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anywidget import AnyWidget
from traitlets import Bool, Int, Unicode

__all__ = ["FileInput"]


class FileInput(AnyWidget):
    """`on_file` gets the name and the content; None for the content of a file of more than `most_bytes`. Nothing is kept here."""

    _esm = Path(__file__).parent / "file_input.js"

    accept = Unicode().tag(sync=True)  # suffixes, separated by commas
    description = Unicode().tag(sync=True)
    disabled = Bool(False).tag(sync=True)
    most_bytes = Int().tag(sync=True)

    def __init__(self, on_file: Callable[[str, bytes | None], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._on_file = on_file
        self.on_msg(self._take)

    def _take(self, _widget: object, message: Any, buffers: list[Any]) -> None:
        content = bytes(buffers[0]) if buffers else None
        if content is not None and len(content) > self.most_bytes:  # not sent by the button
            content = None
        self._on_file(str(message.get("name", ""))[:200] if isinstance(message, dict) else "", content)
