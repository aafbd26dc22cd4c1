"""The command line: exit status, the JSON document, and one sentence for bad input."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner.cli import planner
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
