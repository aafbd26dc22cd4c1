"""The pilot on the CPU with a tiny random model: the same code as on a GPU, its log, its ends, and the comparison."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from planner import pilot_command
from planner.catalogues import find_gpu
from planner.cli import planner
from planner.errors import PlannerError
from planner.families import architecture_from_config
from planner.job import Job
from planner.memory import memory_breakdown
from planner.pilot import Run, find_runs, read_measurement, start
from planner.pilot.compare import compared, verdict
from planner.pilot.record import Measurement, measurement_of, read_events
from planner.plan import make_plan
from planner.sentences import note_text
from planner.sharding import Sharding
from planner.workbook import Workbook, pilot_card
from planner.workbook.pilot_card import PilotCard

ROOT = Path(__file__).parents[1]
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip


def tiny(**fields: Any) -> Job:
    return Job(architecture=architecture_from_config(CONFIG, name="tiny"), **{"method": "lora", "sequence_length": 16, **fields})


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "runs"
    for run in find_runs(tmp_path / "runs"):  # nothing outlives its test
        run.cancel(0.1)


def wait_for(run: Run, reached: Callable[[list[dict[str, Any]]], bool], seconds: float = 120) -> list[dict[str, Any]]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        events = run.events()
        if reached(events):
            return events
        time.sleep(0.05)
    raise AssertionError(run.events() or (run.folder / "output.txt").read_text())


def stepped(events: list[dict[str, Any]]) -> bool:
    return any(event["event"] == "step" for event in events)


def finished(run: Run) -> Measurement:
    assert run.process
    run.process.wait(240)
    return run.finish()


# ---- logs and records, without a process ------------------------------------------------------------------------------


def event(name: str, **values: Any) -> dict[str, Any]:
    return {"event": name, "at": 0.0, **values}


def on_a_card(state: str = "done", scale: float = 1.0) -> Measurement:
    """A pilot on a card that measured `scale` times what the closed form has."""
    job, gpu = tiny(), find_gpu("a100-sxm4-80")
    memory = memory_breakdown(job, gpu)
    at = {instant: int(scale * size) for instant, size in memory.allocated_at.items()}
    peaks = {"load": at["load"], "forward": at["forward"], "backward": max(at["loss"], at["backward_end"], at["backward_start"])}
    phases = [
        event("phase", phase=name, peak_allocated_bytes=size, peak_reserved_bytes=int(memory.peak.reserved * scale))
        for name, size in {**peaks, "optimizer": at["optimizer"]}.items()
    ]
    steps = [event("step", seconds=s, tokens=16, loss=2.0, skipped=False) for s in (9.0, 2.0, 2.0, 1.0, 1.5, 1.0)]
    return measurement_of(job, [event("start", steps=6), *phases, *steps, event("end", state=state, problem="no room")])


def test_speed_leaves_the_first_steps_out_and_errors_are_counted() -> None:
    steps = [
        event("step", seconds=s, tokens=100, loss=loss, skipped=False)
        for s, loss in ((9, 1.0), (5, None), (2, 1.0), (2, 0.5), (4, 0.4))
    ]
    found = measurement_of(tiny(), [event("start", steps=9), *steps])
    assert (found.step_seconds, found.tokens_per_s) == (3.0, 100 / 3.0)
    assert found.error_rate == 1 / 5
    assert (found.state, found.steps, found.steps_asked) == ("died", 5, 9)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"event": "start", "pid": 1}\n{"event": "step", "lo')
    assert [found["event"] for found in read_events(log)] == ["start"]
    assert read_events(tmp_path / "none") == []


def test_a_pilot_that_measures_what_was_planned_holds() -> None:
    rows = compared(on_a_card(), find_gpu("a100-sxm4-80"))
    sizes = [row for row in rows if row.unit == "bytes"]
    assert all(abs(row.difference or 0) < 1e-3 for row in sizes)
    assert {"load", "forward", "backward", "optimizer", "reserved"} <= {row.name for row in rows}
    assert note_text(verdict(on_a_card(), rows), "en").startswith("the plan holds: ")
    step = next(row for row in rows if row.unit == "seconds")
    assert step.measured == 1.0 and step.closed_form


def test_a_pilot_that_needs_more_says_what_was_off() -> None:
    rows = compared(on_a_card(scale=1.25), find_gpu("a100-sxm4-80"))
    assert note_text(verdict(on_a_card(scale=1.25), rows), "en").endswith("by -20.0 %")


def test_running_out_of_memory_is_an_answer() -> None:
    found = on_a_card("out of memory")
    text = note_text(verdict(found.model_copy(update={"during": "backward"}), []), "tr")
    assert text == "pilotun belleği 6 adımın 6 tanesinden sonra tükendi; aşama: kayıp ve backward (no room)"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as the worker's own process is started
def test_it_is_said_in_which_phase_memory_ran_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from planner.pilot import worker
    from planner.pilot.steps import Steps

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Steps, "_optimizer_step", full)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its own
    log = tmp_path / "log.jsonl"
    request = {"job": tiny().model_dump(mode="json"), "device": "cpu", "log": str(log)}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert worker.main(str(tmp_path / "request.json")) == 1
    found = measurement_of(tiny(), read_events(log))
    assert (found.state, found.during, found.steps, found.problem[:18]) == ("out of memory", "optimizer", 0, "CUDA out of memory")


# ---- the process ------------------------------------------------------------------------------------------------------


@pytest.fixture
def needs_torch() -> None:
    for package in ("torch", "transformers", "peft", "bitsandbytes", "accelerate"):
        pytest.importorskip(package)


pytestmark = pytest.mark.usefixtures("needs_torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"method": "qlora"}, {"method": "full", "optimizer": "adamw-fused"}, {"method": "lora", "gradient_accumulation_steps": 2},
        {"method": "dora", "quantization": "nf4", "gradient_checkpointing": "off"}, {"method": "prompt", "precision": "fp32"},
    ],
    ids=str,
)  # fmt: skip
def test_a_pilot_trains_and_holds_what_was_planned(fields: dict[str, Any], runs: Path) -> None:
    run = start(tiny(**fields), runs, device="cpu", steps=12)
    wait_for(run, lambda events: bool(events) and events[-1]["event"] == "end")
    found = run.finish()
    assert (found.state, found.problem, found.steps) == ("done", "", 12)
    losses = [loss for loss in found.losses if loss is not None]
    assert losses[-1] < losses[0] and found.error_rate == 0
    assert found.environment["device"] == "cpu" and found.environment["versions"]["torch"]
    for row in compared(found):  # rotary frequencies are buffers, and each 4-bit layer has tables of about a kilobyte
        assert row.measured == pytest.approx(row.closed_form, abs=40_000 if row.name == "quantization_state" else 256)
    assert not [row for row in compared(found) if row.name in ("load", "forward", "backward", "reserved")]
    assert read_measurement(run.folder / "measurement.json") == found


@pytest.mark.slow
def test_a_pilot_is_found_again_and_cancelled_by_another_process(runs: Path) -> None:
    started = start(tiny(), runs, device="cpu", steps=100_000)
    wait_for(started, stepped)
    (again,) = find_runs(runs)
    assert again.process is None and again.running and again.job == started.job
    again.cancel()
    assert not again.running
    found = started.finish()
    assert (found.state, found.steps_asked) == ("cancelled", 100_000) and found.steps >= 1
    assert started.process and started.process.poll() is not None  # no zombie is left


@pytest.mark.slow
def test_a_pilot_that_does_not_listen_is_ended_and_counts_as_cancelled(runs: Path) -> None:
    run = start(tiny(), runs, device="cpu", steps=100_000)
    wait_for(run, stepped)
    run.cancel(grace_s=0)
    assert not run.running
    assert run.finish().state == "cancelled"


@pytest.mark.slow
def test_a_killed_pilot_leaves_a_log_and_a_record_that_says_so(runs: Path) -> None:
    run = start(tiny(), runs, device="cpu", steps=100_000)
    wait_for(run, stepped)
    assert run.process
    os.killpg(run.process.pid, signal.SIGKILL)
    run.process.wait(20)
    assert not run.running
    found = run.finish()
    assert found.state == "died" and found.steps >= 1 and found.losses
    assert "died after" in note_text(verdict(found, []), "en")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_ends_the_pilot_with_a_sentence(runs: Path, tmp_path: Path) -> None:
    run = start(tiny(), runs, device="cpu", steps=4)
    run.cancel(0)
    (run.folder / "cancelled").unlink()
    request = json.loads((run.folder / "request.json").read_text())
    (run.folder / "request.json").write_text(json.dumps({**request, "log": "/dev/full"}))
    (run.folder / "log.jsonl").unlink(missing_ok=True)
    command = [sys.executable, "-m", "planner.pilot.worker", str(run.folder / "request.json")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "No space left" in done.stderr and "Traceback" not in done.stderr
    assert run.finish().state == "died"


@pytest.mark.slow
def test_weights_that_cannot_be_loaded_are_said(runs: Path, tmp_path: Path) -> None:
    found = finished(start(tiny(), runs, device="cpu", steps=4, weights=str(tmp_path / "none")))
    assert found.state == "failed" and "cannot be loaded" in found.problem


@pytest.mark.parametrize(
    ("fields", "options", "sentence"),
    [
        ({"loss": "liger"}, {}, "plain loss only"),
        ({}, {"shallow": True, "largest_micro_batch": True}, "one of these"),
        ({}, {"data": "none.jsonl"}, "'none.jsonl' is no file"),
        ({}, {"sharding": Sharding("zero2", 2)}, "ddp, or FSDP2"),
        ({}, {"sharding": Sharding("ddp", 8), "device": "cuda"}, "takes 8 GPUs"),
        ({"precision": "fp16-mixed"}, {"sharding": Sharding("ddp", 2)}, "no loss scaler"),
    ],
    ids=str,
)
def test_what_a_pilot_cannot_do_is_said_before_it_starts(
    fields: dict[str, Any], options: dict[str, Any], sentence: str, runs: Path
) -> None:
    with pytest.raises(PlannerError, match=sentence):
        start(tiny(**fields), runs, **{"device": "cpu", **options})
    assert not runs.exists()


# ---- what else a pilot does -------------------------------------------------------------------------------------------


def test_shallow_models_show_every_kind_of_block() -> None:
    from planner.pilot.modes import shallow_depths

    assert shallow_depths(["a"] * 32) == [[0, 1], [0, 1, 2, 3]]
    assert shallow_depths(["d", *["m"] * 9]) == [[0, 1, 2], [0, 1, 2, 3, 4]]
    assert shallow_depths(["s", "s", "f"] * 4) == [[0, 1, 2, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 5, 8, 11]]
    assert shallow_depths(["a"]) == [[0]]


@pytest.mark.parametrize("true", [0, 1, 2, 3, 7, 8, 100, 128, 200])
def test_the_largest_micro_batch_is_found_in_few_tries(true: int) -> None:
    from planner.pilot.modes import largest

    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= true

    assert largest(fits, 128) == min(true, 128)
    assert len(tried) <= 15 and len(set(tried)) == len(tried)


@pytest.mark.slow
def test_a_shallow_pilot_gives_the_figures_of_the_whole_model(runs: Path) -> None:
    deep = Job(
        architecture=architecture_from_config({**CONFIG, "num_hidden_layers": 7}, name="deep"), method="qlora", sequence_length=16
    )
    shallow, whole = (finished(start(deep, runs / str(i), device="cpu", steps=12, shallow=i == 0)) for i in range(2))
    assert (shallow.state, shallow.blocks_run, whole.blocks_run) == ("done", (2, 4), ())
    assert shallow.components == whole.components
    assert shallow.step_seconds and whole.step_seconds


@pytest.mark.slow
def test_a_timed_pilot_on_the_users_rows_evaluates_and_saves(runs: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "kaç", "completion": "beş"}\n' * 40 + '{broken\n{"number": 1}\n')
    run = start(tiny(), runs, device="cpu", minutes=0.05, data=str(data))
    found = finished(run)
    assert (found.state, found.rows, found.rows_failed, found.tokenizer) == ("done", 42, 2, "bytes")
    assert found.evaluation_losses and found.checkpoint_bytes and found.checkpoint_seconds
    assert found.wait_share is not None and not (run.folder / "checkpoint").exists()


@pytest.mark.slow
def test_trained_weights_are_those_of_the_folder(runs: Path, tmp_path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**CONFIG)).save_pretrained(tmp_path / "model")
    weights = str(tmp_path / "model")
    found = finished(start(tiny(quantization="nf4", method="qlora"), runs, device="cpu", steps=4, weights=weights))
    assert (found.state, found.weights, found.problem) == ("done", weights, "")
    other = Job(architecture=architecture_from_config({**CONFIG, "vocab_size": 300}, name="other"), sequence_length=16)
    refused = finished(start(other, runs, device="cpu", steps=4, weights=weights))
    assert "have vocab_size 512, the job's model has 300" in refused.problem


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), [("ddp", "lora"), ("fsdp", "full")])
def test_two_processes_share_a_model(kind: Any, method: str, runs: Path) -> None:
    sharding = Sharding(kind, 2)
    found = finished(start(tiny(method=method), runs, device="cpu", steps=4, sharding=sharding))
    assert (found.state, found.problem, found.steps) == ("done", "", 4)
    held = memory_breakdown(tiny(method=method), sharding=sharding)
    for component in ("weights", "gradients", "optimizer_states"):
        instant = "optimizer" if component == "gradients" else "resident"
        planned = sum(x.bytes for x in held.lines if x.component == component and x.instant == instant)
        assert found.components[component] == pytest.approx(planned, abs=512)


def test_a_driver_that_goes_away_takes_no_pilot_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.pilot.measure import Nvml

    def lost() -> None:
        raise RuntimeError("GPU is lost")

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=lost))
    with Nvml(period_s=0.001) as nvml:
        pass
    assert (nvml.summary(), nvml.problem) == ({}, "RuntimeError: GPU is lost")


@pytest.mark.slow
def test_the_matrix_for_a_gpu_runs_on_a_processor_and_is_taken_up_again(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "tests/gpu/matrix.py", "--cpu", "--steps", "3", "--out", str(tmp_path)]
    for jobs, lines in ((1, 1), (2, 1)):  # the second time only the second job is run
        done = subprocess.run([*command, "--only", str(jobs)], capture_output=True, text=True, timeout=240, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(": done") == lines
    assert len(list(tmp_path.glob("cpu/*.json"))) == 2


# ---- the workbook -----------------------------------------------------------------------------------------------------


def card_of(runs: Path, **fields: Any) -> PilotCard:
    return PilotCard(lambda: make_plan(tiny(**fields), find_gpu("rtx-4090-24")), language="en", runs=runs, steps=6)


@pytest.mark.slow
def test_the_card_starts_watches_and_compares(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot_card, "devices", list)

    async def visit() -> PilotCard:
        card = card_of(runs)
        assert "for trying" in card.heading.value and not card.start.disabled
        card.start.click()
        assert card._task and card.start.disabled and card.cancel.layout.display is None
        await card._task
        return card

    card = asyncio.run(visit())
    assert "step 6 of 6" in card.status.value
    assert len(card.chart.spec["data"][0]["y"]) == 6
    assert "optimizer states" in card.comparison.table.value and "the plan holds" in card.comparison.result.value
    assert not card.start.disabled
    card.translate("tr")
    assert "adım 6/6" in card.status.value


@pytest.mark.slow
def test_a_new_kernel_takes_up_a_running_pilot_and_can_end_it(runs: Path) -> None:
    run = start(tiny(), runs, device="cpu", steps=100_000)
    wait_for(run, stepped)

    async def visit() -> PilotCard:
        card = card_of(runs)
        assert card.start.disabled and card._task
        card.cancel.click()
        await card._task
        return card

    card = asyncio.run(visit())
    assert "cancelled after" in card.comparison.result.value
    assert run.process and run.process.wait(20) is not None


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    card = card_of(tmp_path / "file")
    card.start.click()
    assert "cannot be started in" in card.status.value


def test_the_published_app_has_no_pilot_unless_its_owner_wants_it() -> None:
    assert Workbook().pilot is None
    assert Workbook(allow_pilot=True).pilot is not None


# ---- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pilot_command, "devices", list)
    check = CliRunner().invoke(planner, ["pilot", "--check"])
    assert check.exit_code == 1 and "no GPU is attached" in check.output
    refused = CliRunner().invoke(planner, ["pilot", "Llama-3.1-8B", "--runs", str(tmp_path)])
    assert refused.exit_code == 2 and "--cpu" in refused.output
    (tmp_path / "file").write_text("")
    blocked = CliRunner().invoke(planner, ["pilot", "gpt2", "--sequence-length", "64", "--cpu", "--runs", str(tmp_path / "file")])
    assert blocked.exit_code == 2 and "cannot be started in" in blocked.output


@pytest.mark.slow
def test_the_command_runs_and_compares(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    arguments = [
        "pilot",
        str(config),
        "--cpu",
        "--steps",
        "3",
        "--sequence-length",
        "16",
        "--runs",
        str(tmp_path / "runs"),
        "--json",
    ]
    result = CliRunner().invoke(planner, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["measurement"]["state"] == "done"
    assert {row["name"] for row in document["compared"]} >= {"weights", "adapters", "optimizer_states"}
