"""The workbook's "your data": a file of the visitor's, measured, drawn under the present sequence length, and used for the plan."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ipywidgets as widgets

from planner.catalogues import known_models
from planner.dataset import Profile, measure_dataset
from planner.dataset.rows import COLUMNAR, SUFFIXES
from planner.dataset_views import dataset_table, length_histogram, malformed_table, profile_texts
from planner.errors import PlannerError
from planner.job import Job
from planner.texts import translated
from planner.units import format_percent
from planner.workbook.chart import Chart
from planner.workbook.file_input import FileInput
from planner.workbook.page_html import box, folded, table_html
from planner.workbook.pilot_controls import inside

__all__ = ["DataCard"]

MOST_BYTES = 9_000_000  # of an upload: Jupyter's servers close the connection at a message of 10 MiB
# Not Parquet and Arrow, of which a few bytes can unpack to more than the machine has.
_SENT = tuple(suffix for suffix, kind in SUFFIXES.items() if kind not in COLUMNAR)
_PERIOD_S = 0.3  # between two looks at the progress


class DataCard(widgets.VBox):
    """One file at a time: uploaded, measured in a temporary folder and deleted; or one of `folder`, where the owner of the app names one.

    Nothing of its content is kept, shown or logged. `on_use` gets the profile when the visitor wants the plan to use it.
    """

    def __init__(
        self,
        job: Callable[[], Job],
        *,
        language: str,
        folder: Path | None = None,
        allow_hub: bool = False,
        on_use: Callable[[Profile], None] = lambda profile: None,
    ) -> None:
        self._job, self._language, self._folder, self._allow_hub, self._on_use = job, language, folder, allow_hub, on_use
        self.profile: Profile | None = None
        self._message: PlannerError | str = ""
        self._done, self._cancelled, self._used = 0.0, False, False
        self._task: asyncio.Task[None] | None = None
        self.heading, self.status, self.texts, self.tables, self.used = (widgets.HTML() for _ in range(5))
        self.status.add_class("planner-live")
        self.upload = FileInput(self._on_file, accept=",".join(_SENT), most_bytes=MOST_BYTES)
        self.chosen = widgets.Dropdown(options=_names(folder) if folder else ())
        self.measure, self.cancel = widgets.Button(), widgets.Button()
        self.use = widgets.Button(button_style="primary", layout={"align_self": "flex-start"})
        self.measure.on_click(self._on_measure)
        self.cancel.on_click(self._on_cancel)
        self.use.on_click(self._on_click_use)
        self.chart = Chart(height=300)
        owned = [self.chosen, self.measure] if folder and self.chosen.options else []
        actions = widgets.HBox([self.upload, *owned, self.cancel, self.status])
        actions.add_class("planner-actions")
        self._result = box("planner-parts", self.texts, self.chart, self.use, self.used, self.tables)
        super().__init__([self.heading, actions, self._result])
        self.add_class("planner-card")
        self.add_class("planner-data")
        self._running(False)
        self.translate(language)

    def translate(self, language: str) -> None:
        """Everything in one language."""
        self._language = language
        say = partial(translated, language=language)
        limit = say(
            "JSONL, CSV or text, at most {size} MB; it is measured here, and deleted at once. Others: planner dataset FILE"
        )
        hint = escape(limit.format(size=MOST_BYTES // 10**6))
        self.heading.value = f'<h2>{escape(say("Your data"))}</h2><p class="planner-hint">{hint}</p>'
        self.upload.description, self.cancel.description = say("Upload a file"), say("Cancel")
        self.chosen.description, self.measure.description = say("Or one that is there"), say("Measure")
        self.use.description = say("Use it in the plan")
        self.draw()

    def draw(self) -> None:
        """What was found, under the sequence length and the batch as the controls have them."""
        language = self._language
        message = self._message
        if isinstance(message, PlannerError):
            self.status.value = f'<p class="planner-error">{escape(message.text(language))}</p>'
        else:
            self.status.value = f'<p class="planner-hint">{escape(message)}</p>' if message else ""
        found = self.profile
        self._result.layout.display = None if found else "none"
        if found is None:
            return
        try:
            job = self._job()
        except PlannerError:  # the controls say it; the last picture stays
            return
        S = job.sequence_length
        self.texts.value = "".join(f"<p>{escape(text)}</p>" for text in profile_texts(found, S, language))
        self.chart.layout.display = self.use.layout.display = None if found.rows else "none"
        if found.rows:
            figure = length_histogram(found, S, language)
            self.chart.alt, self.chart.spec = figure.alt, figure.spec
        say = partial(translated, language=language)
        tables = [(say("The data in numbers"), dataset_table(found, S, job.micro_batch_size, language=language))]
        if found.malformed:
            tables.append((say("The first malformed rows"), malformed_table(found, language)))
        self.tables.value = "".join(folded(title, table_html(table, language, caption=title)) for title, table in tables)
        text = say("Cards and offers now count with these rows and their mean length.") if self._used else ""
        self.used.value = f'<p class="planner-hint" aria-live="polite">{escape(text)}</p>'

    async def read(self, path: Path) -> None:
        """Measure one file off the kernel's thread, and draw what came of it."""
        self.profile, self._message, self._cancelled, self._done, self._used = None, "", False, 0.0, False
        self._running(True)

        def progress(done_bytes: int, total_bytes: int, _rows: int) -> None:
            self._done = min(1.0, done_bytes / total_bytes)

        work = asyncio.create_task(
            asyncio.to_thread(
                measure_dataset,
                path,
                self._model(),
                allow_hub=self._allow_hub,
                progress=progress,
                cancelled=lambda: self._cancelled,
            )
        )
        try:
            while not (await asyncio.wait({work}, timeout=_PERIOD_S))[0]:
                share = format_percent(self._done, language=self._language)
                self._message = translated("{share} read", self._language).format(share=share)
                self.draw()
            self.profile, self._message = work.result(), ""
        except PlannerError as error:
            self._message = PlannerError(error.template, **{**error.values, "path": path.name})  # not where it lies here
        finally:
            self._running(False)
            self.draw()

    def _model(self) -> str | None:
        """Whose tokenizer counts: a model of the catalogue, as a pasted name could be a path."""
        with suppress(PlannerError):
            name = self._job().architecture.name
            return name if name in known_models() else None
        return None

    async def read_upload(self, name: str, content: bytes) -> None:
        """The same for what a visitor sent: it lies in a temporary folder while it is read."""
        with TemporaryDirectory() as folder:
            path = Path(folder, re.sub(r"[^\w.-]", "_", name)[-80:].lstrip(".") or "upload")
            path.write_bytes(content)
            del content
            await self.read(path)

    def _on_file(self, name: str, content: bytes | None) -> None:
        if self.upload.disabled:  # one is being measured
            return
        if content is None or Path(name).suffix.lower() not in _SENT:
            self._message = PlannerError(
                "{path!r} is no JSONL, CSV or text of at most {size} MB; measure it with planner dataset FILE",
                path=name, size=MOST_BYTES // 10**6,
            )  # fmt: skip
            self.draw()
            return
        self._start(self.read_upload(name, content))

    def _on_measure(self, _button: widgets.Button) -> None:
        assert self._folder
        try:
            path = inside(self._folder, self.chosen.value, file=(self._folder / self.chosen.value).is_file())
        except PlannerError as error:  # it has changed since it was offered
            self._message = error
            self.draw()
            return
        self._start(self.read(path))

    def _start(self, work: Any) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    def _on_cancel(self, _button: widgets.Button) -> None:
        self._cancelled = True

    def _on_click_use(self, _button: widgets.Button) -> None:
        if self.profile:
            self._used = True
            self._on_use(self.profile)
            self.draw()

    def _running(self, running: bool) -> None:
        self.upload.disabled = self.measure.disabled = running
        self.cancel.layout.display = None if running else "none"


def _names(folder: Path) -> tuple[str, ...]:
    """What can be measured in the owner's folder: files of rows, and folders of them that are no model's; links out of it cannot."""
    names = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix.lower() in SUFFIXES if path.is_file() else not (path / "config.json").exists():
            with suppress(PlannerError):
                inside(folder, path.name, file=path.is_file())
                names.append(path.name)
    return tuple(names)
