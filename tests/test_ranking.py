"""Ranked offers: what answers, what it costs, and what an offer lacks."""

from datetime import date
from typing import Any

import pytest

from planner.architecture import Architecture
from planner.catalogues import find_model, load_gpus, load_offers, load_providers
from planner.errors import InvalidJob
from planner.job import Job
from planner.memory import memory_breakdown
from planner.offer_views import cost_against_time, delivery_chart, landmarks, mind_text, offers_table, price_age
from planner.placement import Demand, Placement
from planner.ranking import Ranked, Wishes, cheapest, fastest, frontier, rank_offers
from planner.spot import SpotTerms
from planner.storage import StoragePolicy, storage
from planner.workload import Workload

TODAY = date(2026, 12, 1)


def ranked(job: Job, wishes: dict[str, Any] | None = None, **demand: Any) -> list[Ranked]:
    return rank_offers(Demand(job, **demand), load_offers(), load_providers(), load_gpus(), Wishes(**(wishes or {})))


@pytest.fixture(scope="module")
def qlora(llama_3_8b: Architecture) -> list[Ranked]:
    return ranked(Job(architecture=llama_3_8b))


def placed(row: Ranked) -> Placement:
    assert row.placement
    return row.placement


def test_every_offer_is_there_and_those_that_answer_come_first(qlora: list[Ranked]) -> None:
    assert len(qlora) == len(load_offers())
    answers = [row for row in qlora if row.feasible]
    assert qlora[: len(answers)] == answers
    assert [(row.tight, row.usd) for row in answers] == sorted((row.tight, row.usd) for row in answers)
    assert all(row.problems and mind_text(row, "en") for row in qlora[len(answers) :])


def test_each_answer_fits_per_card_and_keeps_the_global_batch(qlora: list[Ranked]) -> None:
    for row in [row for row in qlora if row.feasible][::10]:
        place = placed(row)
        needed = memory_breakdown(place.job, place.gpu, sharding=place.sharding).peak.device
        assert needed <= place.device_bytes * (1 + 1e-9)  # ranked as if it accumulated
        assert place.device_bytes <= place.gpu.usable_memory_bytes
        ranks = place.sharding.data_parallel if place.sharding else 1
        assert place.job.micro_batch_size * place.job.gradient_accumulation_steps * ranks == 16


def test_time_and_money_are_those_of_the_parts(qlora: list[Ranked]) -> None:
    row = next(row for row in qlora if row.feasible and placed(row).nodes == 1)
    assert row.delivery and row.bill
    steps = Workload().steps(placed(row).job)
    training = next(stage for stage in row.delivery.stages if stage.name == "training")
    assert training.seconds == pytest.approx(steps * float(placed(row).step.seconds))
    assert row.bill.lines[0].usd == pytest.approx((row.offer.usd_per_hour or 0) * row.delivery.billed_s / 3600, rel=0.02)


def test_the_frontier_is_beaten_by_no_answer(qlora: list[Ranked]) -> None:
    best = frontier(qlora)
    assert best[0] == cheapest(qlora) and best[-1].wall_s == fastest(qlora).wall_s  # type: ignore[union-attr]
    for row in qlora:
        if row.feasible and not row.tight:
            assert any(other.usd <= row.usd and other.wall_s <= row.wall_s for other in best)


def test_a_tight_offer_says_so_and_is_not_the_answer(llama_3_8b: Architecture) -> None:
    rows = ranked(Job(architecture=llama_3_8b, method="full"), workload=Workload(global_batch_size=64))
    tight = [row for row in rows if row.feasible and row.tight]
    assert tight and all("tight: may need" in mind_text(row, "en") for row in tight)
    best = cheapest(rows)
    assert best and not best.tight
    assert placed(best).high_bytes <= placed(best).gpu.usable_memory_bytes


def test_a_deadline_and_a_budget_turn_offers_away(llama_3_8b: Architecture, qlora: list[Ranked]) -> None:
    job = Job(architecture=llama_3_8b)
    soon = ranked(job, {"deadline_hours": 1})
    first = cheapest(soon)
    assert first and first.wall_s <= 3600 and first.usd >= cheapest(qlora).usd  # type: ignore[union-attr]
    poor = ranked(job, {"budget_usd": 2})
    quick = fastest(poor)
    assert quick and quick.usd <= 2 and quick.wall_s >= fastest(qlora).wall_s  # type: ignore[union-attr]
    assert any("not done by the deadline" in mind_text(row, "en") for row in soon)
    assert any("over the budget" in mind_text(row, "en") for row in poor)


def test_what_nobody_stated_does_not_count_as_there(llama_3_8b: Architecture) -> None:
    rows = ranked(Job(architecture=llama_3_8b), {"persistent_storage": True, "fine_billing": True})
    for row in rows:
        if row.feasible:
            assert row.provider.storage_survives_stop and row.provider.billing in ("second", "minute")
    assert any("not known to have storage that survives a stop" in mind_text(row, "en") for row in rows)


def test_an_unknown_fee_is_feared_and_not_zero(qlora: list[Ranked]) -> None:
    row = next(row for row in qlora if row.bill and "egress of the results" in row.bill.unknown)
    assert row.bill and row.bill.at_most_usd > row.bill.usd
    assert "not known: " in mind_text(row, "en")


def test_a_disk_that_is_kept_is_paid_for(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    kept = ranked(job, policy=StoragePolicy(kept_days=30))
    row = next(row for row in kept if row.provider.id == "aws" and row.bill)
    disk = storage(placed(row).job, Workload(), StoragePolicy(kept_days=30)).peak_bytes
    usd = {line.name: line.usd for line in row.bill.lines}  # type: ignore[union-attr]
    assert usd["storage while stopped"] == pytest.approx(disk / 1e9 * 30 * 24 / 730 * 0.08)


def test_spot_without_interruptions_takes_on_demand_time(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    calm = ranked(job, {"spot": True}, terms=SpotTerms(interruptions_per_hour=0))
    times = {row.offer.key: row.wall_s for row in ranked(job) if row.delivery}
    compared = [row for row in calm if row.delivery and row.offer.key in times]
    assert len(compared) > 20
    for row in compared:
        assert row.spot_run and row.spot_run.interruptions == 0
        assert row.wall_s == pytest.approx(times[row.offer.key])


def test_a_training_time_that_the_user_set_is_taken_as_it_is(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    often = SpotTerms(interruptions_per_hour=1)
    for row in ranked(job, {"spot": True}, terms=often, changed_stages=(("training", 600.0),)):
        if row.bill:
            assert row.bill.usd > 0 and row.spot_run is None and row.probability_by(row.wall_s) == 1


def test_several_spot_machines_are_interrupted_more_often() -> None:
    job = Job(architecture=find_model("Mixtral-8x7B-v0.1"), method="full")
    rows = ranked(job, {"spot": True}, workload=Workload(global_batch_size=64))
    several = [row for row in rows if row.spot_run and placed(row).nodes > 1]
    assert several
    for row in several:
        assert row.spot_run and row.spot_run.terms.interruptions_per_hour == pytest.approx(0.05 * placed(row).nodes)


def test_a_large_model_takes_several_cards_or_machines(llama_3_8b: Architecture) -> None:
    rows = ranked(Job(architecture=llama_3_8b, method="full"), workload=Workload(global_batch_size=64))
    found = landmarks(rows)
    assert found["A100 80 GB"].feasible and placed(found["A100 80 GB"]).sharding
    assert any("lacks" in mind_text(row, "en") for row in rows if not row.feasible)


def test_machines_are_put_together_only_over_a_network_whose_speed_is_known() -> None:
    rows = ranked(Job(architecture=find_model("Llama-3.1-70B"), method="full"), workload=Workload(global_batch_size=256))
    several = [row for row in rows if row.placement and placed(row).nodes > 1]
    assert several and all(row.offer.fabric_bytes_per_s_per_gpu and row.provider.multi_node for row in several)
    assert any("not known: network between machines" in mind_text(row, "en") for row in rows)


def test_more_gpus_than_rows_is_said(llama_3_8b: Architecture) -> None:
    rows = ranked(Job(architecture=llama_3_8b), workload=Workload(global_batch_size=4))
    eights = [row for row in rows if row.offer.gpu_count == 8 and row.offer.gpu_id]
    assert eights and all("8 GPUs, but only 4 rows per optimizer step" in mind_text(row, "en") for row in eights)


def test_every_price_shows_its_date_and_age(qlora: list[Ranked]) -> None:
    table = offers_table(qlora[:20], TODAY)
    column = table.columns.index("Price date")
    assert all("days old" in row[column] for row in table.rows)
    row = next(row for row in qlora if row.provider.id == "aws")
    assert price_age(row, TODAY) == "2026-07-20, 134 days old"


def test_charts_say_what_they_show(qlora: list[Ranked]) -> None:
    figure = cost_against_time(qlora, TODAY)
    assert figure.alt.startswith(f"{sum(row.feasible for row in qlora)} offers answer; the cheapest costs")
    assert {note["text"] for note in figure.spec["layout"]["annotations"]} == {"RTX 4090", "A100 80 GB", "H100"}
    path = next(row.delivery for row in qlora if row.delivery)
    chart = delivery_chart(path)
    assert sum(len(trace["x"]) for trace in chart.spec["data"]) == len(path.stages)
    assert "longest stage is training" in chart.alt


def test_wishes_that_cannot_be_are_one_sentence() -> None:
    with pytest.raises(InvalidJob, match="deadline_hours is -1"):
        Wishes(deadline_hours=-1)
    with pytest.raises(InvalidJob, match="epochs is 0"):
        Workload(epochs=0)
