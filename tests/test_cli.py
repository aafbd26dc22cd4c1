"""The command line: exit status, the JSON document, and one sentence for bad input."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner import dryrun_command
from planner.cli import planner
from planner.dryrun import DryRun
from planner.job import Job


def run(*arguments: str) -> Result:
    return CliRunner().invoke(planner, list(arguments))


def test_exit_status_says_whether_it_fits() -> None:
    assert run("estimate", "Llama-3.1-8B").exit_code == 0
    assert run("estimate", "Llama-3.1-8B", "--method", "full").exit_code == 1
    assert run("estimate", "Lama-3.1-8B").exit_code == 2


def test_every_field_of_the_job_is_an_option() -> None:
    help_text = run("estimate", "--help").output
    for name in Job.model_fields.keys() - {"architecture"}:
        assert f"--{name.replace('_', '-')}" in help_text


def test_json_has_the_promised_keys() -> None:
    result = run("estimate", "Llama-3.1-8B", "--json", "--gpu", "T4")
    document = json.loads(result.output)
    assert {"fits", "peak", "lines", "gpu", "headroom_bytes", "largest_micro_batch"} <= document.keys()
    peak = document["peak"]
    assert {"allocated_bytes", "reserved_bytes", "device_bytes", "low_bytes", "high_bytes", "instant"} <= peak.keys()
    assert all({"name", "instant", "bytes", "formula", "source"} <= line.keys() for line in document["lines"])
    alive = sum(line["bytes"] for line in document["lines"] if line["instant"] in ("resident", peak["instant"]))
    assert alive == pytest.approx(peak["allocated_bytes"], abs=100)  # each line is a whole number
    assert document["fits"] == (document["headroom_bytes"] >= 0) == (result.exit_code == 0)
    assert document["job"]["method"] == "qlora"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Lama-3.1-8B"], "did you mean 'meta-llama/Llama-3.1-8B'"),
        (["Llama-3.1-8B", "--gpu", "RTX 4091"], "did you mean"),
        (["Llama-3.1-8B", "--lora-rank", "0"], "--lora-rank: lora_rank is 0; it must be more than 0"),
        (["Llama-3.1-8B", "--micro-batch-size", "-3"], "must be more than 0"),
        (["Llama-3.1-8B", "--sequence-length", "999999"], "at most 131072"),
        (["Llama-3.1-8B", "--target-modules", "q_prj"], "did you mean 'q_proj'"),
        (["Llama-3.1-8B", "--method", "prefix", "--quantization", "int8"], "does not exist"),
        (["Llama-3.1-8B", "--method", "lorra"], "lorra"),
        (["/no/such/config.json"], "there is no file or folder"),
        (["{not json"], "this is not JSON"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(arguments: list[str], said: str) -> None:
    result = run("estimate", *arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_job_that_does_not_fit_says_what_would_help_and_which_card_holds_it() -> None:
    output = run("estimate", "Llama-3.1-8B", "--method", "full").output
    assert "QLoRA: saves" in output
    assert "Smallest cards that hold it" in output


def test_explain_prints_formula_numbers_and_source() -> None:
    output = run("estimate", "Llama-3.1-8B", "--explain").output
    assert "P_q / 2  [P_q = 6.98 B]" in output
    assert "arXiv:2305.14314" in output


def test_the_answer_can_be_turkish() -> None:
    assert "kartına sığar" in run("estimate", "Llama-3.1-8B", "--language", "tr").output
    assert "adlı bir model yok" in run("estimate", "Lama-3.1-8B", "--language", "tr").output


def test_a_config_in_a_folder(tmp_path: Any) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 1000,
        "intermediate_size": 128,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run("estimate", str(tmp_path), "--sequence-length", "128").exit_code == 0


# ---- dry run: from a run made by hand; one real one ----------------------------------------------------------------------


@pytest.fixture
def made_up(small_dry_run: DryRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dryrun_command, "dry_run", lambda *_args, **_options: small_dry_run)


@pytest.mark.usefixtures("made_up")
def test_a_dry_run_says_what_is_alive_and_stands_beside_the_closed_form() -> None:
    result = run("dryrun", "SmolLM2-135M")
    assert result.exit_code == 0
    for said in ("Fits RTX 4090", "Fullest at: loss, with 8.5 GiB", "Closed form", "layers.*.mlp: parameter", "3 of 30 blocks"):
        assert said in result.output
    assert "bellek" in run("dryrun", "SmolLM2-135M", "--language", "tr").output


@pytest.mark.usefixtures("made_up")
def test_a_dry_run_as_json() -> None:
    document = json.loads(run("dryrun", "SmolLM2-135M", "--json").output)
    assert document["fits"] and document["ran_out"] is None
    assert document["peak"]["allocated_bytes"] == document["instants"][2]["allocated_bytes"] == 17 * 2**29
    assert sum(document["instants"][2]["components"].values()) == 17 * 2**29
    assert document.keys() & {"model", "job", "gpu", "lines", "versions", "notes"}


@pytest.mark.usefixtures("made_up")
def test_a_dry_run_saves_its_chart_and_its_events(tmp_path: Path) -> None:
    page, snapshot = tmp_path / "out.html", tmp_path / "out.pickle"
    assert run("dryrun", "SmolLM2-135M", "--timeline", str(page), "--snapshot", str(snapshot)).exit_code == 0
    assert "SmolLM2-135M" in page.read_text(encoding="utf-8")
    content = pickle.loads(snapshot.read_bytes())
    assert content.keys() == {"segments", "device_traces"}
    assert any("lm_head" in frame["name"] for event in content["device_traces"][0] for frame in event["frames"])
    unwritable = run("dryrun", "SmolLM2-135M", "--timeline", str(tmp_path / "none" / "out.html"))
    assert (unwritable.exit_code, "cannot be written" in unwritable.output) == (2, True)


def test_a_dry_run_takes_the_options_of_an_estimate_and_refuses_bad_ones() -> None:
    help_text = run("dryrun", "--help").output
    for name in Job.model_fields.keys() - {"architecture"}:
        assert f"--{name.replace('_', '-')}" in help_text
    for arguments, said in (
        (["Lama-3.1-8B"], "did you mean"),
        (["gpt2", "--lora-rank", "0"], "--lora-rank: "),
        (["gpt2", "--allocator", "x:1"], "'x' is unknown"),
    ):
        result = run("dryrun", *arguments)
        assert (result.exit_code, said in result.output) == (2, True)


@pytest.mark.slow
def test_a_real_dry_run_tells_two_cards_apart() -> None:
    pytest.importorskip("torch")
    job = ("dryrun", "SmolLM2-135M", "--sequence-length", "512", "--json")
    document = json.loads(run(*job).output)
    assert document["fits"] and document["traced_blocks"] == 3
    closed, dry = (sum(row[key] for row in document["instants"]) for key in ("closed_form_bytes", "allocated_bytes"))
    assert closed == pytest.approx(dry, rel=0.05)
    full = run(*job, "--micro-batch-size", "64", "--gpu", "T4")
    assert full.exit_code == 1
    assert json.loads(full.output)["ran_out"]["requested_bytes"] > 2**20


def test_fit_on_several_gpus_is_judged_per_card() -> None:
    full = ("estimate", "llama-3.1-8b", "--method", "full", "--gpu", "a100-sxm4-80")
    alone = run(*full)
    assert alone.exit_code == 1
    assert "How many A100 SXM4 80 GB it takes: 4" in alone.output
    shared = run(*full, "--num-gpus", "4", "--json")
    assert shared.exit_code == 0
    assert json.loads(shared.output)["sharding"]["kind"] == "fsdp"
    refused = run(*full, "--num-gpus", "4", "--sharding", "hybrid")
    assert refused.exit_code == 2
    assert refused.output.startswith("planner: --gpus-per-node: hybrid sharding needs two or more whole nodes")
