"""The plan in the workbook, without a browser: opened, changed, confirmed, saved; what is wrong is a sentence and the page stays."""

import json
import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from test_planfile import plans
from test_record import PLAN as RECORDED
from test_record import _measured
from test_texts import SAME, Recorded

from planner import Job, Sharding, find_model, texts
from planner.errors import PlannerError
from planner.export import TARGETS, export
from planner.permalink import link_of
from planner.planfile import Acceptance, Care, DataVersion, HandOver, PlanFile, plan_from_json, plan_text
from planner.ranking import Wishes
from planner.record import experiment_of, write_record
from planner.spot import SpotTerms
from planner.storage import StoragePolicy
from planner.workbook import Workbook
from planner.workbook.file_input import FileInput
from planner.workload import Workload

QLORA = Job(architecture=find_model("Llama-3.1-8B"))
RICH = PlanFile(
    title="Support", purpose="answers", example="{}", data=DataVersion(name="a.jsonl", rows=5), gpu="a100-sxm4-80",
    job=QLORA.changed(method="lora", lora_rank=24, sequence_length=1500, target_modules=("q_proj", "v_proj"), lora_alpha=64,
        modules_to_save=("embed_tokens",)),
    sharding=Sharding("fsdp", 4, gpus_per_node=4, fp32_reduction=True), workload=Workload(examples=12_345, epochs=2.5, global_batch_size=48),
    policy=StoragePolicy(checkpoint_steps=70, loader_workers=5, disk="NVMe"), terms=SpotTerms(interruptions_per_hour=0.03, waiting_s=77),
    wishes=Wishes(spot=True, deadline_hours=31.5, providers=("aws", "gcp"), own_machines=True), changed_stages=(("cleaning", 600.0),),
    prepare_on_gpu=True, learning_rate=3e-5, seed=7, acceptance=Acceptance(peak_share=None, step_s=2.5, loss_falls=False),
    care=Care(classification="special", access=("a", "b"), deletion="c"), hand_over=HandOver(checkpoints="s3://x", result="y", check="z"),
)  # fmt: skip


def upload(widget: FileInput, *contents: bytes) -> None:
    """As a browser hands files over."""
    for number, content in enumerate(contents):
        widget._take(widget, {"name": f"{number}.json"}, [content])


def test_a_plan_goes_through_the_workbook_unchanged() -> None:
    app = Workbook(plan=RICH)
    assert app.plan_file() == RICH
    app.language.value = "tr"
    assert app.plan_file() == RICH


@pytest.mark.slow
@given(plans())
@settings(max_examples=15, deadline=None)
def test_any_plan_goes_through_the_workbook(plan: PlanFile) -> None:
    found = Workbook(plan=plan).plan_file()
    # the number that only another method reads, and names of people that hold a comma, may come back otherwise
    assert found.job.trained_params == plan.job.trained_params and found.plan.memory.peak == plan.plan.memory.peak
    assert found.workload == plan.workload and found.acceptance == plan.acceptance and found.purpose == plan.purpose


def test_a_model_in_no_catalogue_comes_with_its_plan() -> None:
    own = QLORA.architecture.model_copy(update={"name": "ours/8B", "num_hidden_layers": 30})
    app = Workbook(plan=PlanFile(job=Job(architecture=own)))
    assert app.job().architecture == own
    app.controls.by_field["model"].value = "Qwen/Qwen3-8B"
    assert app.job().architecture.name == "Qwen/Qwen3-8B"


def test_the_address_of_the_page_brings_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERY_STRING", f"plan={link_of(RICH)}")
    app = Workbook()
    assert app.plan_file() == RICH and app.page.link == f"?plan={link_of(RICH)}"
    monkeypatch.setenv("QUERY_STRING", "plan=damaged")
    app = Workbook()
    assert "the link holds no plan" in app.controls.error.value and app.job() == Workbook().job()


def test_what_the_page_saves_opens_again() -> None:
    app = Workbook(plan=RICH, view="plan")
    saved = re.search(r"base64,([^\"]+)", app.steps.files.value)
    assert saved and plan_from_json(b64decode(saved[1])) == RICH
    other = Workbook(view="plan")
    upload(other.steps.upload, b64decode(saved[1]))
    assert other.plan_file() == RICH


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"version": 7}', b"\xff", b"x" * 4_000_001], ids=["empty", "none", "newer", "binary", "large"]
)
def test_what_is_no_plan_leaves_the_page_as_it_was(content: bytes) -> None:
    app = Workbook(plan=RICH, view="plan")
    upload(app.steps.upload, content)
    assert 'role="alert"' in app.steps.error.value and app.plan_file() == RICH


def test_a_step_is_confirmed_on_the_page() -> None:
    app = Workbook(plan=PlanFile(job=QLORA.changed(gradient_accumulation_steps=16)), view="plan")
    assert "ready" in app.steps.titles["method"].value
    app.steps.confirm["method"].click()
    assert "passed" in app.steps.titles["method"].value and app.steps.confirm["method"].disabled
    app.controls.by_field["lora_rank"].value = 64
    assert "ready" in app.steps.titles["method"].value


def test_a_pilot_is_held_against_the_criteria_on_the_page() -> None:
    app = Workbook(plan=PlanFile(job=QLORA), view="plan")
    app.steps.measured(_measured(steps=6, losses=(6.0, 5.0, 4.0, 3.0, 2.0, 1.0), nvml={"peak_used_bytes": 10.0}))
    assert "passed" in app.steps.titles["pilot"].value and "loss falls" in app.steps.titles["pilot"].value
    app.steps.controls.by_field["acceptance.step_s"].value = "1"
    assert "failed" in app.steps.titles["pilot"].value


def test_a_pilots_record_is_opened_into_the_plan() -> None:
    app = Workbook(plan=PlanFile(job=QLORA), view="plan")
    found = _measured(steps=6, losses=(6.0, 5.0, 4.0, 3.0, 2.0, 1.0), nvml={"peak_used_bytes": 10.0})
    upload(app.steps.upload, found.model_dump_json().encode())
    assert app.plan_file().pilot == found and "passed" in app.steps.titles["pilot"].value


def test_care_for_the_data_narrows_the_offers() -> None:
    app = Workbook(view="offers")
    assert {row.provider.kind for row in app.offers.ranked if row.feasible} >= {"marketplace"}
    app.steps.controls.by_field["care.classification"].value = "personal"
    assert not [row for row in app.offers.ranked if row.feasible and row.provider.kind == "marketplace"]


def test_a_deletion_is_recorded_with_its_date() -> None:
    app = Workbook(view="plan")
    app.steps.controls.gone.value = "token cache"
    app.steps.controls.delete.click()
    (deleted,) = app.plan_file().care.deleted
    assert deleted.what == "token cache" and deleted.on.isoformat() in app.steps.care.value


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{name}", "%s" * 9, "\x00", "‮abc")


@pytest.mark.parametrize("attack", HOSTILE)
def test_what_is_typed_is_text(attack: str) -> None:
    app = Workbook(view="plan")
    for field in (
        "title",
        "purpose",
        "example",
        "data.name",
        "hand_over.check",
        "care.access",
        "care.region",
        "care.deletion",
        "seed",
        "care.providers",
    ):
        app.steps.controls.by_field[field].value = attack
    shown = "".join(widget.value for widget in (app.steps.error, app.steps.care, app.steps.files, *app.steps.titles.values()))
    assert "<script" not in shown and "<img" not in shown
    assert "alert" in app.steps.error.value  # role, as the seed is no number


def test_a_secret_that_is_typed_is_refused_and_not_linked() -> None:
    app = Workbook(view="plan")
    before = app.page.link
    app.steps.controls.by_field["purpose"].value = "hf_" + "a1B2" * 9
    assert "Hugging Face token" in app.steps.error.value and app.page.link == before
    with pytest.raises(PlannerError):
        app.plan_file()


def test_the_report_is_made_on_the_page() -> None:
    app = Workbook(plan=RICH, view="plan", language="tr")
    app.steps.report.click()
    page = re.search(r"base64,([^\"]+)", app.steps.made.value)
    assert page and b64decode(page[1]).decode().startswith('<!doctype html>\n<html lang="tr">')
    app.steps.controls.by_field["title"].value = "another"
    assert app.steps.made.value == ""


def test_the_training_files_are_made_on_the_page() -> None:
    app = Workbook(plan=PlanFile(job=QLORA), view="plan")
    for target in TARGETS:
        app.steps.target.value = target
        app.steps.export.click()
        packed = re.search(r"base64,([^\"]+)", app.steps.made.value)
        assert packed
        with ZipFile(BytesIO(b64decode(packed[1]))) as archive:
            assert {name: archive.read(name).decode() for name in archive.namelist()} == export(app.plan_file(), target)
    app.controls.by_field["method"].value = "bottleneck"
    app.steps.export.click()
    assert "bottleneck" in app.steps.error.value


def test_records_are_compared_on_the_page(tmp_path: Path) -> None:
    app = Workbook(view="plan")
    contents = []
    for number, plan in enumerate((RECORDED, RECORDED.changed(seed=9))):
        write_record(tmp_path / f"{number}.json", experiment_of(plan))
        contents.append((tmp_path / f"{number}.json").read_bytes())
    upload(app.runs.upload, *contents)
    assert app.runs.table.value.count("<table>") == 3 and "seed" in app.runs.table.value
    upload(app.runs.upload, b"{}")
    assert 'role="alert"' in app.runs.error.value and app.runs.table.value.count("<table>") == 3


def test_visitors_do_not_see_the_owners_pilots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "request.json").write_text(json.dumps({"job": QLORA.model_dump(mode="json")}))
    (run / "measurement.json").write_text(_measured().model_dump_json())
    (run / "log.jsonl").write_text('{"event": "end"}\n')
    assert Workbook().runs.table.value == ""
    assert "<table>" in Workbook(allow_pilot=True).runs.table.value


@pytest.mark.slow
def test_all_that_the_plan_view_looks_up_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    monkeypatch.setattr(texts, "TURKISH", recorded)
    app = Workbook(plan=RICH, view="plan", language="tr")
    app.steps.measured(_measured(job=RICH.job.model_dump(mode="json")))
    upload(app.steps.upload, b"{}")
    assert plan_text(RICH)
    commands = {text for text in recorded.missing if text.startswith(("rm ", "~/", "aws "))}
    written = {RICH.hand_over.checkpoints, RICH.hand_over.result, "q_proj,v_proj", "embed_tokens"}
    assert recorded.missing - SAME - commands - written == set()
