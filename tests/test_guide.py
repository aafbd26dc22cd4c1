"""The guide: each goal gets what it asks for, the range holds the plan, and the same plan opens in every other view."""

import pytest

from planner.catalogues import find_gpu, find_model, load_gpus, load_offers, load_providers
from planner.guide import GOALS, Goal, Guided, guided
from planner.plan import make_plan
from planner.workbook import Workbook
from planner.workbook.guide_view import EXAMPLES, MODELS, with_terms


def ask(model: str, examples: int, goal: Goal) -> Guided:
    found = guided(find_model(model), examples, goal, load_offers(), load_providers(), load_gpus())
    assert found
    return found


@pytest.mark.parametrize("model", MODELS)
def test_each_goal_gets_what_it_asks_for(model: str) -> None:
    by_goal = {goal: ask(model, 10_000, goal) for goal in GOALS}
    rows = {goal: found.row for goal, found in by_goal.items()}
    assert rows["cheapest"].usd == min(row.usd for row in rows.values())
    assert rows["soonest"].wall_s == min(row.wall_s for row in rows.values())
    safe = rows["safest"]
    assert safe.provider.storage_survives_stop
    assert safe.provider.kind != "marketplace"
    assert safe.placement
    assert safe.placement.headroom_share >= 0.15
    for found in by_goal.values():
        assert found.row.feasible
        assert found.best.usd <= found.row.usd <= found.worst.usd
        assert found.best.wall_s < found.row.wall_s < found.worst.wall_s
        plan = found.plan
        assert make_plan(plan.job, find_gpu(plan.gpu), None, plan.sharding).verdict != "does not fit"  # by another route


@pytest.mark.parametrize("goal", GOALS)
def test_more_data_never_costs_less(goal: Goal) -> None:
    costs = [ask("meta-llama/Llama-3.1-8B", examples, goal) for examples in EXAMPLES]
    if goal == "soonest":
        assert [found.row.wall_s for found in costs] == sorted(found.row.wall_s for found in costs)
    else:
        assert [found.row.usd for found in costs] == sorted(found.row.usd for found in costs)


def test_a_model_that_no_offer_holds_has_no_answer() -> None:
    small = [offer for offer in load_offers() if offer.gpu_id == "t4" and offer.gpu_count == 1]
    assert guided(find_model("meta-llama/Llama-3.1-70B"), 1000, "cheapest", small, load_providers(), load_gpus()) is None


def test_the_view_answers_in_both_languages_and_hands_the_plan_on() -> None:
    app = Workbook(view="guide")
    assert "LoRA" in app.guide.answer.value
    assert "What could go wrong" in app.guide.answer.value
    app.guide.goal.value = "safest"
    app.guide.model.value = "Qwen/Qwen2.5-14B"
    app.language.value = "tr"
    assert "Neler ters gidebilir" in app.guide.answer.value
    assert app.guide.model.value == "Qwen/Qwen2.5-14B"
    title = app.steps.controls.by_field["title"]
    title.value = "ours"
    app.guide.more.click()
    assert app.view.value == "memory"
    assert app.guide.found
    plan = app.plan_file()
    assert (plan.job, plan.gpu, plan.offer) == (app.guide.found.plan.job, app.guide.found.plan.gpu, app.guide.found.row.offer.key)
    assert plan.wishes.persistent_storage
    assert plan.title == "ours"  # what was written down stays


def test_words_of_the_glossary_are_explained_and_the_rest_is_escaped() -> None:
    shown = with_terms("QLoRA & <b>LoRAs</b>", "en")
    assert shown.count("role='tooltip'") == 1
    assert "&amp; &lt;b&gt;LoRAs" in shown
