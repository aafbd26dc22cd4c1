"""What the workbook's pilot may be asked for: modes, and rows and weights of the owner's folder and of nowhere else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InvalidJob
from planner.families import architecture_from_config, parse_config
from planner.job import Job
from planner.pilot import find_runs
from planner.pilot.record import Measurement
from planner.pilot.run import Run
from planner.workbook import Workbook, pilot_card
from planner.workbook.pilot_controls import PilotControls, inside

CONFIG = (
    '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,'
    ' "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 4096, "_name_or_path": %s}'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with rows and weights, and with links and files that no visitor may have."""
    folder = tmp_path / "opened"
    (folder / "model").mkdir(parents=True)
    (folder / "satırlar ö.jsonl").write_text('{"text": "beş"}\n' * 8)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"")
    (folder / ".hidden.jsonl").write_text("{}")
    (tmp_path / "secret.jsonl").write_text('{"text": "secret"}\n')
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "up").symlink_to(tmp_path)
    (folder / "round.jsonl").symlink_to(folder / "round.jsonl")
    (folder / "same.jsonl").symlink_to(folder / "satırlar ö.jsonl")
    (folder / "leaky").mkdir()
    (folder / "leaky" / "config.json").write_text("{}")
    (folder / "leaky" / "model.safetensors").symlink_to(tmp_path / "secret.jsonl")
    return folder


def test_only_what_lies_in_the_folder_is_offered(folder: Path) -> None:
    controls = PilotControls(folder)
    assert set(controls.by_field["data"].options) == {"satırlar ö.jsonl", "same.jsonl"}
    assert controls.by_field["weights"].options == ("model",)


@pytest.mark.parametrize(
    "name",
    [
        "link.jsonl", "up/secret.jsonl", "../secret.jsonl", "model/../../secret.jsonl", "/etc/passwd", "~/x.jsonl", ".hidden.jsonl", "round.jsonl",
        "none.jsonl", "model", "*.jsonl", "simplecache::file", "http://host/x.jsonl", "a\\b", "x\x00.jsonl", "x\n", "", ".", "..", "y" * 9999,
    ],
)  # fmt: skip
def test_every_other_name_is_refused_in_one_sentence(folder: Path, name: str) -> None:
    with pytest.raises(InvalidJob, match="choose one that is offered") as refused:
        inside(folder, name, file=True)
    assert str(folder) not in str(refused.value) and "\n" not in str(refused.value)


def test_weights_with_a_link_out_of_the_folder_are_refused(folder: Path) -> None:
    assert inside(folder, "model", file=False) == folder.resolve() / "model"
    for name in ("leaky", "up", "satırlar ö.jsonl"):
        with pytest.raises(InvalidJob):
            inside(folder, name, file=False)


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("micro", {"steps": 50, "data": "satırlar ö.jsonl", "weights": "model"}),
        ("shallow", {"shallow": True, "steps": 50, "data": "satırlar ö.jsonl"}),
        ("timed", {"minutes": 5, "data": "satırlar ö.jsonl", "weights": "model"}),
        ("largest", {"largest_micro_batch": True, "weights": "model"}),
    ],
)
def test_each_mode_asks_for_what_it_reads(folder: Path, mode: str, asked: dict[str, Any]) -> None:
    controls = PilotControls(folder)
    for field, value in {"mode": mode, "steps": 50, "minutes": 5, "data": "satırlar ö.jsonl", "weights": " model "}.items():
        controls.by_field[field].value = value
    controls.translate("tr")  # values stay
    paths = {field: str(folder.resolve() / asked[field]) for field in ("data", "weights") if field in asked}
    assert controls.request() == {"shallow": False, "largest_micro_batch": False, **asked, **paths}
    shown = {field for field, control in controls.by_field.items() if control.layout.display is None}
    assert shown == {"mode"} | (asked.keys() & {"steps", "minutes", "data", "weights"})


def test_an_app_without_a_folder_takes_neither_rows_nor_weights(tmp_path: Path) -> None:
    closed = Workbook(allow_pilot=True).pilot
    assert closed and set(closed.controls.by_field) == {"mode", "steps", "minutes"}
    assert closed.controls.request() == {"shallow": False, "largest_micro_batch": False, "steps": 20}
    missing = Workbook(allow_pilot=True, folder=tmp_path / "none").pilot
    assert missing and "is not there" in missing.status.value


def test_the_card_starts_what_its_controls_say(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Ended(Run):
        def finish(self) -> Measurement:
            return Measurement(job=self.job.model_dump(mode="json"), state="cancelled")

        @property
        def job(self) -> Job:
            return Job(architecture=architecture_from_config(parse_config(CONFIG % '"tiny"')))

    def begun(job: Job, runs: Path, **options: Any) -> Run:
        asked.update(options)
        return Ended(runs / "none")

    monkeypatch.setattr(pilot_card, "start", begun)
    monkeypatch.setattr(pilot_card, "devices", lambda: ["a card", "another"])
    app = Workbook(allow_pilot=True, folder=folder)
    assert app.pilot
    fields = app.pilot.controls.by_field
    fields["mode"].value, fields["data"].value = "timed", "link.jsonl"
    app.controls.by_field["num_gpus"].value = 2
    app.pilot.start.click()
    assert asked == {} and "choose one that is offered" in app.pilot.status.value
    fields["data"].value = "same.jsonl"

    async def visit() -> None:
        assert app.pilot
        app.pilot.start.click()
        assert app.pilot._task
        await app.pilot._task

    asyncio.run(visit())
    assert (asked["device"], asked["minutes"], asked["data"]) == ("cuda", 60, str(folder.resolve() / "satırlar ö.jsonl"))
    assert asked["sharding"].num_gpus == 2 and not asked["sharding"].divided_base


def test_a_pilot_that_ended_while_no_kernel_looked_is_shown(tmp_path: Path) -> None:
    run = tmp_path / "20260101-000000-1-tiny"
    run.mkdir()
    job = Job(architecture=architecture_from_config(parse_config(CONFIG % '"tiny"')))
    (run / "request.json").write_text(f'{{"job": {job.model_dump_json()}}}')
    (run / "log.jsonl").write_text('{"event": "start", "steps": 9}\n')

    async def visit() -> pilot_card.PilotCard:
        card = pilot_card.PilotCard(Workbook().plan, language="en", runs=tmp_path)
        assert card._task
        await card._task
        return card

    assert "died after 0 of 9 steps" in asyncio.run(visit()).comparison.result.value
    (found,) = find_runs(tmp_path)
    assert found.finished
    assert pilot_card.PilotCard(Workbook().plan, language="en", runs=tmp_path)._run is None


def test_a_pasted_config_cannot_name_a_tokenizer_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    from planner.pilot.batches import Batches

    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "model").mkdir()
    (tmp_path / "rows.jsonl").write_text('{"text": "beş"}\n')
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    def read(name: str, **_: Any) -> Any:
        asked.append(name)
        raise OSError("nothing there")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", read)
    for name in (str(tmp_path / "org" / "model"), "org/model", "org/../org/model", "./none", "~/model", "org/other"):
        a = architecture_from_config(parse_config(CONFIG % f'"{name}"'))
        assert a.name == name
        batches = Batches(Job(architecture=a, sequence_length=8), "cpu", str(tmp_path / "rows.jsonl"), None)
        assert batches.tokenizer == "bytes"
    assert asked == ["org/other"]  # which the Hub's cache may have
    Batches(Job(architecture=a, sequence_length=8), "cpu", str(tmp_path / "rows.jsonl"), str(tmp_path / "org" / "model"))
    assert asked[1:] == [str(tmp_path / "org" / "model")]  # the weights' own folder
