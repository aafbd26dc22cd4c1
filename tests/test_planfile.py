"""A plan as a file and as a link: the same plan comes back, whatever is wrong is one sentence, and no secret gets in."""

import json
from base64 import urlsafe_b64encode
from datetime import date
from pathlib import Path
from zlib import compress

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Job, Sharding, find_model, load_gpus
from planner.cli import planner
from planner.credentials import secret_in, without_secrets
from planner.errors import InvalidJob, PlannerError
from planner.five_steps import STEPS, confirm, criteria, five_steps
from planner.permalink import link_of, plan_of_link, plan_of_query
from planner.pilot.record import Measurement
from planner.planfile import (
    Acceptance,
    Care,
    DataVersion,
    Deleted,
    HandOver,
    PlanFile,
    plan_from_json,
    plan_values,
    read_plan,
    write_plan,
)
from planner.ranking import Wishes
from planner.storage import StoragePolicy
from planner.workload import Workload

MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-4b-it", "openai-community/gpt2")
QLORA = Job(architecture=find_model("Llama-3.1-8B"))
# Made up; put together here so that no scanner takes this file for a leak.
SECRETS = {
    "a Hugging Face token": "hf_" + "aB3" * 12,
    "a GitHub token": "ghp_" + "x1Y2" * 9,
    "an API key": "sk-proj-" + "a1B2" * 10,
    "an AWS key": "AKIA" + "ABCDEFGH12345678",
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "a URL with a password": "https://me:" + "word1234@host.example/data",
    "a password": "token: " + "abcd1234" * 3,
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: secret_in(text) is None)
days = st.dates(date(2026, 1, 1), date(2030, 1, 1))


@st.composite
def plans(draw: st.DrawFn) -> PlanFile:
    """Plans with anything set that may be set."""
    job = Job(
        architecture=find_model(draw(st.sampled_from(MODELS))), method=draw(st.sampled_from(["full", "lora", "qlora", "ia3", "prefix"])),
        sequence_length=draw(st.integers(1, 900)), micro_batch_size=draw(st.integers(1, 64)), packing=draw(st.booleans()),
        double_quant=draw(st.booleans()),
    )  # fmt: skip
    sharding = draw(
        st.none()
        | st.builds(Sharding, st.sampled_from(["ddp", "fsdp", "zero2"]), st.sampled_from([2, 4, 8]), divided_base=st.booleans())
    )
    return PlanFile(
        title=draw(texts), purpose=draw(texts), example=draw(texts), job=job, gpu=draw(st.sampled_from(sorted(load_gpus()))),
        sharding=sharding, learning_rate=draw(st.floats(1e-7, 1)), seed=draw(st.integers(0, 2**32 - 1)),
        data=DataVersion(name=draw(texts), sha256=draw(st.sampled_from(["", "0" * 64])), rows=draw(st.integers(0, 10**9))),
        workload=Workload(examples=draw(st.integers(1, 10**9)), epochs=draw(st.floats(0.1, 10))),
        policy=StoragePolicy(checkpoint_steps=draw(st.integers(1, 1000))), wishes=Wishes(spot=draw(st.booleans()), region=draw(texts)),
        changed_stages=tuple(draw(st.lists(st.tuples(st.sampled_from(["training", "cleaning"]), st.floats(0, 1e6)), max_size=2))),
        acceptance=Acceptance(peak_share=draw(st.none() | st.floats(0.01, 1)), loss_falls=draw(st.booleans())),
        care=Care(classification=draw(st.sampled_from(["public", "special"])), access=tuple(draw(st.lists(texts, max_size=2))),
                  deleted=tuple(Deleted(what=draw(texts), on=draw(days)) for _ in range(draw(st.integers(0, 2))))),
        hand_over=HandOver(checkpoints=draw(texts)),
    )  # fmt: skip


@given(plans())
@settings(max_examples=60, deadline=None)
def test_a_link_gives_the_plan_back(plan: PlanFile) -> None:
    assert plan_of_link(link_of(plan)) == plan
    assert plan_of_query("?plan=" + link_of(plan)) == plan


@given(plans())
@settings(max_examples=60, deadline=None)
def test_a_file_gives_the_plan_back(tmp_path_factory: pytest.TempPathFactory, plan: PlanFile) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    write_plan(path, plan)
    assert read_plan(path) == plan


def test_a_model_that_is_in_no_catalogue_is_kept_whole() -> None:
    own = QLORA.architecture.model_copy(update={"name": "ours/8B", "num_hidden_layers": 30})
    plan = PlanFile(job=Job(architecture=own))
    assert plan_values(plan)["job"]["architecture"]["num_hidden_layers"] == 30
    assert plan_of_link(link_of(plan)) == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[1]", "a JSON list"),
        ("[" * 100_000, "not JSON"),
        ('{"version": 2, "job": {}}', "newer planner (version 2"),
        ('{"version": true}', "its version is 'True'"),
        ("{}", "neither a version nor the job"),
        ('{"version": 1}', "job is missing"),
        ('{"version": 1, "job": {"architecture": "Lama-3.1-8B"}}', "did you mean"),
        ('{"version": 1, "job": {"architecture": "Llama-3.1-8B"}, "colour": 1}', "no field 'colour'"),
        ('{"version": 1, "job": {"architecture": "Llama-3.1-8B", "lora_rank": -1}}', "lora_rank"),
        ('{"version": 1, "job": {"architecture": "Llama-3.1-8B"}, "gpu": "RTX"}', "no card 'RTX'"),
        ('{"version": 1, "job": {"architecture": "/etc/passwd"}}', "no model named"),
    ],
)
def test_what_is_no_plan_is_said_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(PlannerError, match=r"(?s).*") as problem:
        plan_from_json(text)
    assert said in str(problem.value) and "\n" not in str(problem.value)


def test_an_estimate_of_an_earlier_version_opens_as_a_plan() -> None:
    options = ["Llama-3.1-8B", "--method", "lora", "--gpu", "A100 SXM4 80 GB", "--num-gpus", "2", "--json"]
    document = CliRunner().invoke(planner, ["estimate", *options]).stdout
    plan = plan_from_json(document)
    assert (
        plan.version == 1
        and plan.job.method == "lora"
        and plan.gpu == "a100-sxm4-80"
        and plan.sharding
        and plan.sharding.num_gpus == 2
    )
    assert int(plan.plan.memory.peak.device) == json.loads(document)["peak"]["device_bytes"]


def test_an_estimate_writes_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    ran = CliRunner().invoke(planner, ["estimate", "Llama-3.1-8B", "--micro-batch-size", "2", "--write-plan", str(path)])
    assert ran.exit_code == 0 and read_plan(path) == PlanFile(
        job=QLORA.changed(micro_batch_size=2), workload=Workload(global_batch_size=2)
    )


def test_the_cheapest_offer_is_written_as_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    arguments = [
        "offers",
        "Llama-3.1-8B",
        "--method",
        "full",
        "--examples",
        "5000",
        "--deadline",
        "30",
        "--json",
        "--write-plan",
        str(path),
    ]
    document = json.loads(CliRunner().invoke(planner, arguments).stdout)
    plan, best = read_plan(path), document["offers"][document["cheapest"]]
    assert plan.offer and plan.offer[:2] == (best["provider"], best["instance_type"]) and plan.gpu == best["gpu"]
    assert (
        plan.job.micro_batch_size == best["micro_batch_size"]
        and plan.workload.examples == 5000
        and plan.wishes.deadline_hours == 30
    )
    assert int(plan.plan.memory.peak.device) == best["device_bytes"] and _states(plan)["settings"] == "ready"


def test_a_file_that_is_no_plan_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("my notes")
    with pytest.raises(PlannerError, match="not JSON"):
        write_plan(path, PlanFile(job=QLORA))
    assert path.read_text() == "my notes"
    with pytest.raises(PlannerError, match="there is no file"):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    "link", ["x", "é", "A" * 20_000, link_of(PlanFile(job=QLORA))[:-9], urlsafe_b64encode(compress(b"x" * 10**7)).decode()]
)
def test_a_damaged_link_is_said_in_a_sentence(link: str) -> None:
    with pytest.raises(PlannerError, match="the link holds no plan"):
        plan_of_link(link)


@given(st.binary(max_size=200))
def test_no_link_breaks_the_reader(content: bytes) -> None:
    with pytest.raises(PlannerError):
        plan_of_link(urlsafe_b64encode(compress(content)).decode())


def test_a_query_without_a_plan_is_none() -> None:
    assert plan_of_query("") is None and plan_of_query("lang=tr") is None


@pytest.mark.parametrize(("kind", "secret"), SECRETS.items())
def test_no_secret_enters_a_plan(kind: str, secret: str) -> None:
    values = plan_values(PlanFile(job=QLORA)) | {"care": {"access": [f"me ({secret})"]}}
    for attempt in (lambda: plan_from_json(json.dumps(values)), lambda: PlanFile(job=QLORA, title=f"mine {secret}")):
        with pytest.raises(PlannerError) as problem:
            attempt()
        assert kind in str(problem.value) and secret not in str(problem.value)


@pytest.mark.parametrize("secret", SECRETS.values())
def test_a_message_is_shown_without_its_secret(secret: str) -> None:
    text = without_secrets(f"401 for {secret} at the Hub")
    assert secret_in(text) is None and text.startswith("401 for ") and text.endswith("at the Hub")


def test_ordinary_words_are_no_secrets() -> None:
    for text in (
        "QLoRA of Llama-3.1-8B on 4 x A100, token count 12345678901234567",
        "Sorular ve yanıtlar: müşteri destek",
        "a" * 64,
        "s3://bucket/run-1",
    ):
        assert secret_in(text) is None


# ---- five steps ----------------------------------------------------------------------------------------------------------


def _states(plan: PlanFile) -> dict[str, str]:
    return {step.name: step.state for step in five_steps(plan)}


def test_a_step_is_confirmed_and_a_change_opens_it_again() -> None:
    plan = PlanFile(job=QLORA.changed(gradient_accumulation_steps=16))
    assert _states(plan) == {"target": "open", "method": "ready", "settings": "ready", "pilot": "open", "delivery": "open"}
    plan = confirm(confirm(plan, "method"), "settings")
    assert _states(plan)["method"] == _states(plan)["settings"] == "passed"
    longer = plan.changed(job=plan.job.changed(sequence_length=4096))
    assert _states(longer) == _states(plan) | {"settings": "ready"}
    other = plan.changed(job=plan.job.changed(lora_rank=64))
    assert _states(other) == _states(plan) | {"method": "ready"}


def test_what_speaks_against_a_step_fails_it() -> None:
    plan = PlanFile(job=QLORA.changed(method="full"))
    steps = {step.name: step for step in five_steps(plan)}
    assert steps["method"].state == "failed" and "does not fit" in steps["method"].problems[0].template
    assert steps["settings"].state == "failed"  # one row a step, sixteen planned


def test_the_first_and_last_step_say_what_is_missing() -> None:
    plan = PlanFile(
        job=QLORA, purpose="answers in Turkish", example="{}", data=DataVersion(name="a.jsonl"),
        hand_over=HandOver(checkpoints="s3://ours/run", result="s3://ours/final", check="200 questions by hand"),
    )  # fmt: skip
    assert _states(plan)["target"] == _states(plan)["delivery"] == "ready"
    personal = plan.changed(care=Care(classification="personal", encrypted_transfer=False))
    last = five_steps(personal)[-1]
    assert last.state == "failed" and len(last.missing) == 2


def test_personal_data_stay_off_machines_of_strangers() -> None:
    from planner import load_offers, load_providers, rank_offers

    plan = PlanFile(job=QLORA, care=Care(classification="personal", providers=("vast", "lambda", "runpod")))
    ranked = rank_offers(plan.demand, load_offers(), load_providers(), load_gpus(), plan.cared_wishes)
    assert {row.provider.id for row in ranked if row.feasible} <= {"lambda", "runpod"}
    assert any(row.feasible for row in ranked) and not any(row.feasible for row in ranked if row.offer.tier == "community cloud")


def _measured(**values: object) -> Measurement:
    base = {
        "job": QLORA.model_dump(mode="json"), "state": "done", "steps": 9, "losses": (3.0, 2.9, 2.8, 2.5, 2.4, 2.3, 2.2, 2.1, 2.0),
        "step_seconds": 1.5, "phases": {"backward": {"peak_reserved_bytes": 12 * 2**30}},
    }  # fmt: skip
    return Measurement(**(base | values))


def test_a_pilot_is_held_against_each_criterion() -> None:
    plan = PlanFile(job=QLORA, acceptance=Acceptance(peak_share=0.9, step_s=2.0), pilot=_measured())
    pilot = five_steps(plan)[STEPS.index("pilot")]
    assert pilot.state == "passed" and [c.name for c in pilot.criteria] == ["peak", "step", "error rate", "loss falls"]
    usable = plan.plan.gpu.usable_memory_bytes
    assert pilot.criteria[0].measured == pytest.approx(12 * 2**30 / usable)
    for change, failing in (
        ({"nvml": {"peak_used_bytes": 0.95 * usable}}, "peak"), ({"step_seconds": 2.1}, "step"), ({"error_rate": 0.1}, "error rate"),
        ({"losses": (2.0, 2.0, 2.1, 2.2, 2.3, 2.4)}, "loss falls"),
    ):  # fmt: skip
        failed = plan.changed(pilot=_measured(**change))
        step = five_steps(failed)[STEPS.index("pilot")]
        assert step.state == "failed" and [c.name for c in step.criteria if not c.passed] == [failing]


def test_a_pilot_that_does_not_answer_leaves_the_step_open_or_failed() -> None:
    plan = PlanFile(job=QLORA, pilot=_measured(phases={}))
    assert _states(plan)["pilot"] == "open" and criteria(plan, plan.pilot)[0].passed is None
    assert _states(plan.changed(pilot=_measured(state="out of memory")))["pilot"] == "failed"
    assert _states(plan.changed(job=QLORA.changed(lora_rank=8)))["pilot"] == "open"


def test_absurd_values_are_refused() -> None:
    for values in (
        {"learning_rate": 0.0},
        {"seed": -1},
        {"title": "x" * 301},
        {"acceptance": {"peak_share": 2}},
        {"care": {"classification": "secret"}},
    ):
        with pytest.raises(InvalidJob):
            PlanFile(job=QLORA, **values)
