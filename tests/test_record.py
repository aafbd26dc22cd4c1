"""The record of an experiment: what it keeps, how two are told apart, and that nothing already kept is lost."""

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner import Job, find_gpu, find_model, load_gpus, load_offers, load_providers, make_plan, rank_offers, step_time
from planner.care import checklist, copies, transfer_s
from planner.cli import planner
from planner.errors import PlannerError
from planner.pilot.record import Measurement, write_measurement
from planner.planfile import Care, DataVersion, HandOver, PlanFile, read_plan, write_plan
from planner.record import experiment_of, read_record, replay, write_record
from planner.record.bottleneck import bottlenecks
from planner.record.diff import changes, outcomes
from planner.record_views import bottleneck_texts, record_text, runs_table
from planner.storage import StoragePolicy
from planner.workload import Workload

QLORA = Job(architecture=find_model("Llama-3.1-8B"))
PLAN = PlanFile(job=QLORA, data=DataVersion(name="a.jsonl", sha256="1" * 64), workload=Workload(global_batch_size=1))
STATE = {
    "log_history": [
        {"loss": 2.0, "step": 1}, {"loss": 1.5, "step": 2}, {"eval_loss": 1.4, "step": 2}, {"eval_loss": 1.3, "step": 4}, {"train_runtime": 7.5}
    ]
}  # fmt: skip


def _measured(**values: object) -> Measurement:
    base = {"job": QLORA.model_dump(mode="json"), "state": "done", "steps": 4, "losses": (3.0, 2.0), "step_seconds": 1.5}
    return Measurement(**(base | values))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The output folder of a run, as Trainer leaves it."""
    last = tmp_path / "out" / "checkpoint-4"
    last.mkdir(parents=True)
    (last / "trainer_state.json").write_text(json.dumps(STATE))
    (last / "adapter_model.safetensors").write_bytes(b"weights")
    (last / "tokenizer.json").write_text("{}")
    (tmp_path / "out" / "environment.json").write_text('{"python": "3.12.1", "torch": "2.9.0+cu128"}')
    return tmp_path / "out"


def _planner(*arguments: object) -> Result:
    return CliRunner().invoke(planner, list(map(str, arguments)))


def test_a_record_keeps_what_the_run_left(run: Path, tmp_path: Path) -> None:
    made = experiment_of(PLAN, run, _measured())
    assert made.losses == (2.0, 1.5) and made.evaluation == {"eval_loss": 1.3} and made.train_s == 7.5
    weights = next(file for file in made.checkpoints if file.path.endswith(".safetensors"))
    assert (weights.bytes, weights.sha256) == (7, hashlib.sha256(b"weights").hexdigest())
    assert made.tokenizer and made.tokenizer.sha256 == hashlib.sha256(b"{}").hexdigest()
    assert made.environment["torch"] == "2.9.0+cu128" and made.plan.pilot
    assert made.prediction.device_bytes == make_plan(QLORA, find_gpu("rtx-4090-24")).memory.peak.device
    assert made.assumptions["allocator_slack"].source
    write_record(tmp_path / "record.json", made)
    assert read_record(tmp_path / "record.json") == made


def test_a_record_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("kept")
    with pytest.raises(PlannerError, match="a record is not overwritten"):
        write_record(path, experiment_of(PLAN))
    assert path.read_text() == "kept"


def test_replay_gives_plan_and_environment_back(run: Path, tmp_path: Path) -> None:
    plan, lock = replay(experiment_of(PLAN, run), tmp_path / "again")
    assert read_plan(plan) == PLAN
    assert lock.read_text().splitlines() == ["# Python 3.12.1; seed 42; data 1111111111111111", "torch==2.9.0"]
    with pytest.raises(PlannerError, match="not an empty folder"):
        replay(experiment_of(PLAN), tmp_path / "again")


def test_a_difference_is_named_with_what_it_does() -> None:
    longer = PLAN.changed(job=QLORA.changed(sequence_length=4096), learning_rate=1e-4, title="second")
    found = {change.field: change for change in changes(experiment_of(PLAN), experiment_of(longer))}
    assert found.keys() == {"job.sequence_length", "learning_rate", "title"}
    gpu, length = find_gpu("rtx-4090-24"), found["job.sequence_length"]
    after, before = (make_plan(job, gpu).memory.peak.device for job in (longer.job, PLAN.job))
    assert length.peak_bytes == pytest.approx(after - before) and length.moves_loss
    # half as many rows, each of which takes its own time
    times = [float(step_time(job, gpu).seconds * PLAN.workload.rows(job)) for job in (longer.job, PLAN.job)]
    assert length.training_s == pytest.approx(times[0] - times[1])
    assert found["learning_rate"].moves_loss and not found["title"].moves_loss
    assert found["learning_rate"].peak_bytes is None


def test_effects_of_single_changes_explain_the_whole() -> None:
    other = PLAN.changed(job=QLORA.changed(lora_rank=64), gpu="a100-sxm4-80")
    a, b = experiment_of(PLAN), experiment_of(other)
    whole = b.prediction.device_bytes - a.prediction.device_bytes
    assert sum(change.peak_bytes or 0 for change in changes(a, b)) == pytest.approx(whole, rel=0.05)


def test_a_method_is_changed_with_its_base() -> None:
    lora = PLAN.changed(job=QLORA.changed(method="lora"))
    found = {change.field: change.peak_bytes for change in changes(experiment_of(PLAN), experiment_of(lora))}
    assert found["job.method"] == pytest.approx(lora.plan.memory.peak.device - PLAN.plan.memory.peak.device)
    assert found["job.quantization"] is None  # a base without its method is no job


def test_outcomes_take_pilot_and_run(run: Path) -> None:
    first = experiment_of(PLAN, None, _measured(nvml={"peak_used_bytes": 5.0}))
    second = experiment_of(PLAN, run, _measured(phases={"backward": {"peak_reserved_bytes": 7}}))
    found = {outcome.name: (outcome.before, outcome.after) for outcome in outcomes(first, second)}
    assert found["measured peak"] == (5.0, 7) and found["last loss"] == (2.0, 1.5) and found["measured step"] == (1.5, 1.5)


def test_the_commands_make_show_compare_and_replay(run: Path, tmp_path: Path) -> None:
    plan, pilot, record, other = (tmp_path / f"{name}.json" for name in ("plan", "pilot", "record", "other"))
    write_plan(plan, PLAN)
    write_measurement(pilot, _measured())
    made = _planner("record", "make", plan, "--pilot", pilot, "--run", run, "--out", record)
    assert made.exit_code == 0 and "Llama-3.1-8B" in made.output and "eval_loss 1.300" in made.output
    assert _planner("record", "show", record, "--language", "tr").output.count("\n") == made.output.count("\n")
    assert json.loads(_planner("record", "show", record, "--json").output)["evaluation"] == {"eval_loss": 1.3}
    assert _planner("record", "diff", record, record).exit_code == 0
    write_plan(plan, PLAN.changed(seed=7))
    _planner("record", "make", plan, "--run", run, "--out", other)
    told = _planner("record", "diff", record, other)
    assert told.exit_code == 1 and "seed" in told.output
    assert [change["field"] for change in json.loads(_planner("record", "diff", record, other, "--json").output)["changes"]] == [
        "seed"
    ]
    assert _planner("record", "replay", record, "--out", tmp_path / "again").exit_code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"), (b"\xff\xfe", "not JSON"), (b"[]", "a JSON list"), (b'{"version": 9}', "newer planner"),
        (b'{"version": 1}', "made is missing"), (b'{"version": 1, "made": "2026-01-01", "plan": 3}', "plan"),
    ],
)  # fmt: skip
def test_a_corrupted_or_newer_record_is_a_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    ran = _planner("record", "show", path)
    assert ran.exit_code == 2 and said in ran.output and ran.output.count("\n") == 1


def test_a_cut_record_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, experiment_of(PLAN))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(PlannerError, match="not JSON"):
        read_record(path)


def test_a_secret_that_a_run_left_does_not_enter_a_record(run: Path) -> None:
    (run / "environment.json").write_text(json.dumps({"torch": "2.9", "HF_TOKEN": "hf_" + "a1B2" * 9}))
    with pytest.raises(PlannerError, match="Hugging Face token"):
        experiment_of(PLAN, run)


def test_links_and_folders_that_are_none(run: Path, tmp_path: Path) -> None:
    (run / "outside.json").symlink_to(tmp_path / "elsewhere.json")
    (run / "loop").symlink_to(run)
    (tmp_path / "elsewhere.json").write_text("{}")
    assert {Path(file.path).name for file in experiment_of(PLAN, run).checkpoints} == {
        "environment.json", "trainer_state.json", "adapter_model.safetensors", "tokenizer.json"
    }  # fmt: skip
    with pytest.raises(PlannerError, match="no folder"):
        experiment_of(PLAN, tmp_path / "none")


# ---- what holds a run back, and care -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"state": "out of memory"}, {"training": "memory"}),
        ({"wait_share": 0.4, "nvml": {"mean_utilisation": 0.5}}, {"training": "data loading"}),
        ({"wait_share": 0.01, "nvml": {"mean_utilisation": 0.97}}, {"training": "compute"}),
        (
            {"wait_share": 0.01, "nvml": {"mean_utilisation": 0.4, "peak_used_bytes": 98.0}},
            {"training": "CPU", "micro-batch": "memory"},
        ),
        ({"wait_share": 0.01, "checkpoint_bytes": 10**9, "checkpoint_seconds": 20.0}, {"training": None, "checkpoints": "disk"}),
        ({"checkpoint_bytes": 10**9, "checkpoint_seconds": 1.0}, {"checkpoints": None}),
        ({}, {}),
    ],
)
def test_the_bottleneck_is_named_from_the_measures(values: dict[str, object], named: dict[str, str | None]) -> None:
    found = _measured(**values)
    assert {row.stage: row.what for row in bottlenecks(found, 100.0)} == named
    assert len(bottleneck_texts(found, 100.0, "tr")) == len(named)


def test_runs_are_listed_side_by_side() -> None:
    table = runs_table([("one", experiment_of(PLAN)), ("two", experiment_of(PLAN.changed(gpu="t4")))], "tr")
    assert [row[0] for row in table.rows] == ["one", "two"] and len(set(table.rows[0]) & set(table.rows[1])) >= 3
    assert "Adım" not in record_text(experiment_of(PLAN), "en")


def test_copies_name_what_deletes_them_where_they_are() -> None:
    plan = PLAN.changed(
        offer=("aws", "g6", "on-demand", "", 1),
        policy=StoragePolicy(disk="network volume"),
        hand_over=HandOver(checkpoints="s3://ours/run"),
    )
    found = {copy.what: copy for copy in copies(plan)}
    assert found["disk"].delete.startswith("aws ec2 delete-volume") and "s3 rm" in found["checkpoints"].delete
    assert found["dataset"].bytes == 10_000 * 500 * 4
    local = {copy.what: copy for copy in copies(plan.changed(policy=StoragePolicy(disk="NVMe")))}
    assert "terminate" in local["disk"].delete


def test_the_checklist_asks_more_of_personal_data() -> None:
    public, personal = (PLAN.changed(care=Care(classification=kind)) for kind in ("public", "personal"))
    assert not [check.name for check in checklist(public) if check.settled is False]
    assert [check.name for check in checklist(personal) if check.settled is False] == [
        "places",
        "disk",
        "access",
        "deletion",
        "deleted",
    ]


def test_the_transfer_takes_what_its_stage_takes() -> None:
    ranked = rank_offers(PLAN.demand, load_offers()[:40], load_providers(), load_gpus())
    path = next(row.delivery for row in ranked if row.delivery)
    assert transfer_s(PLAN) == next(stage.seconds for stage in path.stages if stage.name == "data transfer")
    assert transfer_s(PLAN.changed(changed_stages=(("data transfer", 60.0),))) == 60
