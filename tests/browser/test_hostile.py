"""A link or a file from a stranger: what stands in it is shown as text and never runs."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from planner.catalogues import find_model
from planner.job import Job
from planner.permalink import link_of
from planner.planfile import Care, DataVersion, HandOver, PlanFile

EVIL = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>\"'><svg onload=window.hacked=1>"
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "vocab_size": 1000, "_name_or_path": EVIL, "torch_dtype": EVIL,
}  # fmt: skip


def check(page: Page) -> None:
    """Nothing ran, in any view."""
    for view in ("Three questions", "Cards and offers", "Plan and run", "Memory"):
        page.get_by_role("button", name=view, exact=True).click()
        expect(page.locator(".planner-results:visible").first).to_be_visible()
        page.wait_for_timeout(700)
        assert page.evaluate("window.hacked") is None
        assert page.locator(".planner-app img[src=x]").count() == 0


def test_a_hostile_link(page: Page, voila_url: str) -> None:
    plan = PlanFile(
        job=Job(architecture=find_model("Llama-3.1-8B").model_copy(update={"name": EVIL})), title=EVIL, purpose=EVIL, example=EVIL,
        data=DataVersion(name=EVIL, format=EVIL), care=Care(region=EVIL, deletion=EVIL, access=(EVIL,)),
        hand_over=HandOver(checkpoints=EVIL, result=EVIL, check=EVIL),
    )  # fmt: skip
    page.goto(f"{voila_url}/?plan={link_of(plan)}")
    expect(page.locator(".planner-plot .bars .point path").first).to_be_attached(timeout=60_000)
    check(page)


@pytest.mark.parametrize("query", ["plan=%3Cimg%20src%3Dx%20onerror%3D%22hacked%3D1%22%3E", "plan=" + "A" * 5000])
def test_a_damaged_link_is_said_in_one_sentence(page: Page, voila_url: str, query: str) -> None:
    page.goto(f"{voila_url}/?{query}")
    expect(page.get_by_role("alert")).to_contain_text("link", timeout=60_000)
    assert page.evaluate("window.hacked") is None


def test_hostile_text_in_every_field(page: Page, voila_url: str, tmp_path: Path) -> None:
    page.goto(voila_url)
    expect(page.locator(".planner-plot .bars .point path").first).to_be_attached(timeout=60_000)
    for view in ("Memory", "Cards and offers", "Plan and run"):
        page.get_by_role("button", name=view, exact=True).click()
        fields = page.locator(".planner-app :is(input[type=text], textarea):visible:not([disabled])")
        for number in range(fields.count()):
            fields.nth(number).fill(EVIL)
            fields.nth(number).press("Tab")
    check(page)
    page.get_by_placeholder("model_type").fill(json.dumps(CONFIG))
    page.get_by_placeholder("model_type").press("Tab")
    check(page)
    rows = tmp_path / f"{EVIL.replace('/', '')[:60]}.jsonl"
    rows.write_text(json.dumps({"text": EVIL}) + "\n" + json.dumps({EVIL: EVIL}))
    page.locator("input[type=file]").first.set_input_files(rows)
    check(page)
