"""Messages say what was asked, what is known and what to do; errors carry their data."""

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import BadRow, HubUnavailable, InvalidJob, PlannerError, UnknownName, first_problem, near_names

KNOWN = ["meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-13b-hf", "Qwen/Qwen2.5-7B", "openai-community/gpt2"]


def test_every_error_is_a_planner_error_and_of_the_usual_kind() -> None:
    assert issubclass(UnknownName, PlannerError) and issubclass(UnknownName, LookupError)
    assert issubclass(BadRow, PlannerError) and issubclass(BadRow, ValueError)
    assert issubclass(InvalidJob, PlannerError) and issubclass(InvalidJob, ValueError)
    assert issubclass(HubUnavailable, PlannerError) and issubclass(HubUnavailable, RuntimeError)


def test_a_message_is_filled_with_its_values() -> None:
    error = InvalidJob("{name} is {given}; it must be at least {limit}", field="lora_rank", name="lora_rank", given=0, limit=1)
    assert str(error) == error.text("en") == "lora_rank is 0; it must be at least 1"
    assert error.field == "lora_rank"
    assert error.values == {"name": "lora_rank", "given": 0, "limit": 1}


def test_a_message_without_values_may_hold_braces() -> None:
    assert str(InvalidJob("paste it, from { to }")) == "paste it, from { to }"


def test_a_value_with_braces_is_shown_as_it_is() -> None:
    assert str(InvalidJob("no {name!r}", name="{0} {x}")) == "no '{0} {x}'"


def test_long_values_are_shortened() -> None:
    assert len(str(InvalidJob("no {name!r}", name="x" * 10_000))) < 500


def test_an_unknown_name_carries_its_suggestions() -> None:
    error = UnknownName("model", "llama-2-7b", KNOWN)
    assert error.suggestions[0] == "meta-llama/Llama-2-7b-hf"
    assert (error.kind, error.name) == ("model", "llama-2-7b")
    assert str(error).startswith("no model named 'llama-2-7b'; did you mean 'meta-llama/Llama-2-7b-hf'")


def test_a_name_like_nothing_gets_no_suggestion() -> None:
    assert str(UnknownName("GPU", "zzzzzz", ["t4", "l4"])) == "no GPU named 'zzzzzz'"
    assert UnknownName("GPU", "x" * 100_000, ["t4"]).suggestions == []


@pytest.mark.parametrize(
    ("asked", "found"), [("GPT2", "openai-community/gpt2"), ("qwen2.5-7b", "Qwen/Qwen2.5-7B"), ("qwen", "Qwen/Qwen2.5-7B")]
)
def test_case_and_organisation_need_not_be_typed(asked: str, found: str) -> None:
    assert near_names(asked, KNOWN)[0] == found


def test_at_most_as_many_near_names_as_asked_for() -> None:
    assert len(near_names("llama", KNOWN, count=1)) == 1
    assert near_names("", KNOWN) == []


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rank: int = Field(gt=0, le=1024)
    share: float = Field(default=0.5, ge=0, lt=1)


@pytest.mark.parametrize(
    ("values", "field", "sentence"),
    [
        ({}, "rank", "rank is missing"),
        ({"rank": 0}, "rank", "rank is 0; it must be more than 0"),
        ({"rank": 2048}, "rank", "rank is 2048; it must be at most 1024"),
        ({"rank": 1, "share": -0.5}, "share", "share is -0.5; it must be at least 0"),
        ({"rank": 1, "share": 1}, "share", "share is 1; it must be less than 1"),
        ({"rank": "many"}, "rank", "rank is 'many'; it must be a number"),
        ({"rank": "x" * 1000}, "rank", "rank is 'xxxxx"),
        ({"rank": 1, "color": 2}, "color", "there is no field 'color'"),
    ],
)
def test_the_first_problem_of_a_record_is_one_sentence_about_its_field(
    values: dict[str, object], field: str, sentence: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Record.model_validate(values)
    problem = first_problem(caught.value)
    assert problem.field == field
    assert str(problem).startswith(sentence)
    assert len(str(problem)) < 200
