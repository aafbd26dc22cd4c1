"""A job: its defaults, its two spellings of QLoRA, and one sentence for each thing that does not exist."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.architecture import Architecture
from planner.catalogues import find_model
from planner.errors import InvalidJob, PlannerError
from planner.job import ADAPTER_FIELDS, METHODS, Job
from planner.optimizers import OPTIMIZERS


def test_with_only_a_model_the_job_is_the_documented_qlora(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    assert (job.method, job.quantization, job.double_quant, job.lora_rank, job.target_modules) == (
        "qlora",
        "nf4",
        True,
        16,
        ("all-linear",),
    )
    assert (job.sequence_length, job.micro_batch_size, job.gradient_checkpointing, job.optimizer, job.attention) == (
        2048,
        1,
        "on",
        "adamw",
        "sdpa",
    )


def test_lora_on_a_4_bit_base_is_qlora(llama_3_8b: Architecture) -> None:
    assert Job(architecture=llama_3_8b, method="lora", quantization="nf4") == Job(architecture=llama_3_8b)
    assert Job(architecture=llama_3_8b, method="lora").quantization == "none"


def test_a_job_survives_json(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b, method="dora", quantization="int8", target_modules=("q_proj", "v_proj"))
    assert Job(**json.loads(job.model_dump_json())) == job
    assert Job.model_validate_json(job.model_dump_json()) == job


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"micro_batch_size": 0}, "micro_batch_size", "more than 0"),
        ({"lora_rank": 0}, "lora_rank", "more than 0"),
        ({"lora_rank": 5000}, "lora_rank", "at most 4096"),
        ({"sequence_length": 0}, "sequence_length", "more than 0"),
        ({"sequence_length": 200_000}, "sequence_length", "at most 131072"),
        ({"sequence_length": "long"}, "sequence_length", "a number"),
        ({"lora_dropout": 1.5}, "lora_dropout", "less than 1"),
        ({"method": "lorra"}, "method", "'lora'"),
        ({"optimizer": "adam"}, "optimizer", "'adamw'"),
        ({"target_modules": ("q_prj",)}, "target_modules", "did you mean 'q_proj'"),
        ({"target_modules": ()}, "target_modules", "empty"),
        ({"method": "prefix", "quantization": "int8"}, "quantization", "does not exist"),
        ({"method": "full", "quantization": "nf4"}, "quantization", "does not exist"),
        ({"method": "qlora", "quantization": "int8"}, "quantization", "4-bit"),
        ({"quantization": "nf4", "precision": "fp32"}, "precision", "16 bit"),
        ({"method": "lora", "precision": "fp32", "attention": "flash"}, "attention", "16-bit"),
        ({"method": "prompt", "modules_to_save": ("lm_head",)}, "modules_to_save", "LoRA"),
        ({"method": "freeze", "trainable_layers": 33}, "trainable_layers", "at most 32"),
        ({"method": "bottleneck", "bottleneck_size": 9999}, "bottleneck_size", "at most 4096"),
        ({"method": "full", "save": "merged"}, "save", "merge"),
        ({"method": "prefix", "gradient_checkpointing": "on"}, "gradient_checkpointing", "prefix"),
        ({"method": "prompt", "sequence_length": 131_072}, "sequence_length", "at most 131052"),
        ({"lora_alpha": float("inf")}, "lora_alpha", "inf"),
        ({"speed": 9}, "speed", "no field"),
    ],
)
def test_what_does_not_exist_gets_one_sentence_about_its_field(
    llama_3_8b: Architecture, fields: Any, field: str, said: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        Job(architecture=llama_3_8b, **fields)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.text("tr") != str(caught.value)


def test_flash_attention_is_refused_where_the_model_has_none_and_sdpa_falls_back_to_eager() -> None:
    bloom = find_model("bigscience/bloom-560m")
    with pytest.raises(InvalidJob, match="no flash attention"):
        Job(architecture=bloom, attention="flash")
    assert Job(architecture=bloom).attention_used == "eager"


@pytest.mark.parametrize("fields", [{"method": "dora"}, {"lora_dropout": 0.1}])
def test_peft_cannot_put_everything_on_fused_experts(fields: dict[str, Any]) -> None:
    mixtral = find_model("mistralai/Mixtral-8x7B-v0.1")
    with pytest.raises(InvalidJob, match="fused experts"):
        Job(architecture=mixtral, **fields)
    Job(architecture=mixtral, target_modules=("q_proj",), **fields)
    Job(architecture=mixtral, experts_as_linears=True, **fields)


def test_names_count_once(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b, modules_to_save=("lm_head", "lm_head"), target_modules=("q_proj", "q_proj"))
    assert (job.modules_to_save, job.target_modules) == (("lm_head",), ("q_proj",))


def test_prefix_tuning_runs_without_checkpointing(llama_3_8b: Architecture) -> None:
    assert Job(architecture=llama_3_8b, method="prefix").gradient_checkpointing == "off"
    assert Job(architecture=llama_3_8b).changed(method="prefix").gradient_checkpointing == "off"


def test_a_change_of_method_forgets_the_old_base(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    assert job.changed(method="full").quantization == "none"
    assert job.changed(method="lora").quantization == "none"
    assert job.changed(method="lora").changed(method="qlora") == job


def test_every_adapter_field_is_a_field_and_every_method_has_its_list() -> None:
    assert set(ADAPTER_FIELDS) == set(METHODS)
    assert {field for fields in ADAPTER_FIELDS.values() for field in fields} <= set(Job.model_fields)


def test_every_optimizer_of_the_job_is_in_the_table_with_a_source(llama_3_8b: Architecture) -> None:
    for name, row in OPTIMIZERS.items():
        assert Job(architecture=llama_3_8b, optimizer=name).optimizer_row is row  # type: ignore[arg-type]
        assert row.source


junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.text(max_size=5), max_size=3)
)


@given(st.dictionaries(st.sampled_from(sorted(Job.model_fields.keys() - {"architecture"})), junk, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_values_give_a_job_or_one_sentence(fields: dict[str, Any]) -> None:
    try:
        job = Job(architecture=find_model("meta-llama/Llama-3.1-8B"), **fields)
    except PlannerError as error:
        assert str(error)
        assert error.text("tr")
    else:
        assert Job(**json.loads(job.model_dump_json())) == job
