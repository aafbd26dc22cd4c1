"""The workbook's "your data" without a browser: measured, drawn, used, deleted; an owner's folder and nothing beside it."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from traitlets import TraitError

from planner.catalogues import data_folder
from planner.workbook import Workbook
from planner.workbook.data_card import MOST_BYTES, DataCard

ROWS = b'{"text": "one two three four"}\n' * 50 + b'{"name": "Zeynep"}\n'


@pytest.fixture
def app() -> Workbook:
    return Workbook(folder=data_folder() / "samples")


async def sent(card: DataCard, name: str, content: bytes | None) -> None:
    """As the button sends it, until it is measured."""
    card.upload._take(card.upload, {"name": name}, [content] if content is not None else [])
    if card._task:
        await card._task


def test_what_is_sent_is_measured_and_deleted(app: Workbook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asyncio.run(sent(app.data, "../../evil name.jsonl", ROWS))
    found = app.data.profile
    assert found and (found.name, found.rows, found.malformed_rows) == ("_.._evil_name.jsonl", 50, 1)
    assert list(tmp_path.iterdir()) == []
    assert "50 usable rows" in app.data.texts.value
    assert "has none of the fields" in app.data.tables.value and "Zeynep" not in app.data.tables.value


def test_the_sequence_length_moves_under_the_histogram_and_the_language_changes_all(app: Workbook) -> None:
    asyncio.run(sent(app.data, "rows.txt", b"a row of text\n" * 9))
    assert app.data.chart.spec["layout"]["shapes"][0]["x0"] == 2048
    app.controls.by_field["sequence_length"].value = 512
    assert app.data.chart.spec["layout"]["shapes"][0]["x0"] == 512
    app.language.value = "tr"
    assert "kullanılabilir satır" in app.data.texts.value and "Verileriniz" in app.data.heading.value


def test_the_plan_counts_with_it_once_that_is_asked_for(app: Workbook) -> None:
    asyncio.run(sent(app.data, "rows.jsonl", ROWS))
    controls = app.offers.controls
    assert controls.demand(app.job()).workload.examples == 10_000
    app.data.use.click()
    app.language.value = "tr"  # builds the sliders again
    demand = controls.demand(app.job())
    assert (demand.workload.examples, demand.workload.tokens_per_example) == (50, 4)
    assert demand.policy.dataset_bytes == len(ROWS)
    assert "bu satırlarla" in app.data.used.value
    controls.by_field["examples"].value = 1000  # another amount of data than that of the file
    assert controls.demand(app.job()).policy.dataset_bytes is None


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("rows.jsonl", b"", "&#x27;rows.jsonl&#x27; is empty"),
        ("rows.jsonl", None, "no JSONL, CSV or text of at most 9 MB"),
        ("rows.jsonl", b"a" * (MOST_BYTES + 1), "no JSONL, CSV or text of at most 9 MB"),
        ("rows.parquet", b"PAR1", "no JSONL, CSV or text of at most 9 MB"),
        ("<b>.txt", b"\0", "&#x27;_b_.txt&#x27; is no text"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_one_sentence(app: Workbook, name: str, content: bytes | None, sentence: str) -> None:
    asyncio.run(sent(app.data, name, content))
    assert sentence in app.data.status.value and tempfile.gettempdir() not in app.data.status.value
    assert app.data.profile is None and app.data.upload.disabled is False


def test_measuring_ends_when_it_is_cancelled(app: Workbook, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps({"text": "x" * 1000}).encode() + b"\n" + ROWS * 50_000)

    async def cancelled() -> None:
        work = asyncio.create_task(app.data.read(path))
        await asyncio.sleep(0.05)
        assert app.data.upload.disabled
        app.data.cancel.click()
        await work

    asyncio.run(cancelled())
    assert "was cancelled" in app.data.status.value and app.data.profile is None


def test_only_what_the_owner_put_into_the_folder_can_be_chosen(app: Workbook) -> None:
    assert app.data.chosen.options == ("gpu_rental_en.jsonl", "gpu_rental_tr.jsonl")
    with pytest.raises(TraitError):
        app.data.chosen.value = "../models.csv"

    async def measured() -> None:
        app.data.measure.click()
        assert app.data._task
        await app.data._task

    asyncio.run(measured())
    assert "36 usable rows" in app.data.texts.value
    without = Workbook()
    assert without.data.measure not in without.data.children[1].children


def test_links_out_of_the_folder_circles_and_models_are_not_offered(tmp_path: Path) -> None:
    folder = tmp_path / "opened"
    for name in ("rows", "model", "leaky"):
        (folder / name).mkdir(parents=True)
    (tmp_path / "secret.jsonl").write_bytes(ROWS)
    (folder / "rows" / "train.jsonl").write_bytes(ROWS)
    (folder / "model" / "config.json").touch()
    (folder / "leaky" / "train.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "round.jsonl").symlink_to(folder / "round.jsonl")
    (folder / "later.jsonl").write_bytes(ROWS)
    card = Workbook(folder=folder).data
    assert card.chosen.options == ("later.jsonl", "rows")
    (folder / "later.jsonl").unlink()
    (folder / "later.jsonl").symlink_to(tmp_path / "secret.jsonl")
    card.measure.click()
    assert "choose one that is offered" in card.status.value and card.profile is None
