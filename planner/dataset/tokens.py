"""How many tokens a text has: by a model's own tokenizer where it is at hand, else by a stated number of bytes per token."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.assumption import Assumption
from planner.catalogues import find_model
from planner.errors import PlannerError, UnknownName
from planner.hub import HUB_ID, hub_file
from planner.storage import TEXT_BYTES_PER_TOKEN

__all__ = ["BYTES_PER_TOKEN", "ESTIMATED", "Counter"]

BYTES_PER_TOKEN = Assumption(
    value=TEXT_BYTES_PER_TOKEN, low=2, high=5, source="byte-level BPEs, 2026-12; Petrov et al. 2023, arXiv:2305.15425"
)  # English has about 4; other languages twice as many tokens, or more
# Why the tokens of a model are an estimate.
NOT_NAMED, NOT_INSTALLED, NOT_GIVEN, NOT_ASKED = ESTIMATED = (
    "no model is named",
    "the package 'tokenizers' is missing: pip install 'finetune-planner[data]'",
    "the Hub gave no tokenizer.json for {model}",
    "the tokenizer of {model} is not on this machine, and the Hub is not asked",
)
_FILE = "tokenizer.json"


class Counter:
    """Counts tokens. `model` is a catalogue name, a Hub id, a folder or a tokenizer.json; without one, or without its tokenizer, the
    count is an estimate, and `estimated` says why (a template for `model`). `seconds` is what tokenising alone took.

    Raises PlannerError where a named file is no tokenizer.
    """

    def __init__(self, model: str | None = None, *, allow_hub: bool = False) -> None:
        self.model, self.estimated, self.seconds = model or "", "", 0.0
        self._tokenizer: Any = None
        if not model:
            self.estimated = NOT_NAMED
            return
        try:
            import tokenizers
        except ImportError:
            self.estimated = NOT_INSTALLED
            return
        path = self._path(model, allow_hub)
        if path is None:
            return
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exceptions
            raise PlannerError(
                "{path!r} is no tokenizer that can be read; give the folder of a saved model", path=str(path)
            ) from error
        self._tokenizer.no_padding()  # of a file that was saved with them
        self._tokenizer.no_truncation()

    def _path(self, model: str, allow_hub: bool) -> Path | None:
        """The model's tokenizer.json; None, and the reason in `estimated`, where it is not at hand."""
        path = Path(model).expanduser()
        if path.is_dir() or path.suffix == ".json" or model.startswith((".", "/", "~")):
            file = path / _FILE if path.is_dir() else path
            if not file.is_file():
                raise PlannerError("there is no tokenizer.json at {path!r}; save the model's tokenizer there", path=model)
            self.model = path.resolve().name if path.is_dir() else file.resolve().parent.name
            return file
        try:
            self.model = find_model(model).name
        except UnknownName:
            if not HUB_ID.fullmatch(model):
                raise
        try:
            return hub_file(self.model, _FILE, allow_network=allow_hub)
        except Exception:  # noqa: BLE001  not there, gated, no network: all lead to an estimate
            self.estimated = NOT_GIVEN if allow_hub else NOT_ASKED
            return None

    @property
    def name(self) -> str:
        """Whose tokenizer counts; empty where none does."""
        return "" if self._tokenizer is None else self.model

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, with those that the tokenizer puts around it."""
        if self._tokenizer is None:
            return [max(1, round(len(text.encode()) / BYTES_PER_TOKEN.value)) for text in texts]
        begun = time.perf_counter()
        found = [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts))]
        self.seconds += time.perf_counter() - begun
        return found
