"""The stages of a delivery: worked times, what is billed, and what a user may set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.assumption import Assumption
from planner.delivery import STAGES, DeliveryAssumptions, Work, delivery
from planner.errors import InvalidJob

WORK = Work(
    training_s=3600,
    evaluation_s=60,
    checkpoints_s=30,
    model_bytes=15e9,
    dataset_bytes=50e6,
    dataset_tokens=12e6,
    result_bytes=125e6,
)


def test_worked_times() -> None:
    seconds = {stage.name: stage.seconds for stage in delivery(WORK).stages}
    assert seconds["model download"] == pytest.approx(15e9 / 150e6)
    assert seconds["data transfer"] == pytest.approx(20)
    assert seconds["cleaning"] == pytest.approx(10)
    assert seconds["tokenising"] == pytest.approx(20)
    assert seconds["hand-over"] == pytest.approx(10)
    assert seconds["merge and export"] == 0
    assert seconds["training"] == 3600


def test_stages_follow_one_another_and_preparation_is_not_billed() -> None:
    found = delivery(WORK)
    assert tuple(stage.name for stage in found.stages) == STAGES
    assert all(second.start_s == first.end_s for first, second in zip(found.stages, found.stages[1:], strict=False))
    assert found.wall_s == pytest.approx(sum(stage.seconds for stage in found.stages))
    assert found.wall_s - found.billed_s == pytest.approx(30)
    on_gpu = delivery(WORK, prepare_on_gpu=True)
    assert on_gpu.billed_s == pytest.approx(on_gpu.wall_s) == pytest.approx(found.wall_s)
    assert [stage.name for stage in on_gpu.stages].index("tokenising") > [s.name for s in on_gpu.stages].index("data transfer")


@given(st.sampled_from(STAGES), st.floats(0, 1e6))
def test_a_stage_takes_what_the_user_sets(name: str, seconds: float) -> None:
    plain, found = delivery(WORK), delivery(WORK, changed={name: seconds})
    (before,), (after,) = ([s for s in d.stages if s.name == name] for d in (plain, found))
    assert after.changed and after.seconds == seconds
    assert found.wall_s == pytest.approx(plain.wall_s - before.seconds + seconds)


def test_what_cannot_be_set_is_one_sentence() -> None:
    with pytest.raises(InvalidJob, match="there is no stage 'coffee'; the stages are cleaning, "):
        delivery(WORK, changed={"coffee": 60})
    with pytest.raises(InvalidJob, match="stage 'training' cannot take -1 seconds"):
        delivery(WORK, changed={"training": -1})
    with pytest.raises(InvalidJob, match=r"download is 0\.0; it must be more than 0"):
        DeliveryAssumptions(download=Assumption(value=0, low=0, high=1, source="typed"))
