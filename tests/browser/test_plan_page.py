"""The plan view as a visitor uses it: written down, confirmed, saved, linked, and still there after a reload."""

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

PLAN = "Plan and run"


def _opened(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator(".planner-verdict .planner-pill")).to_be_visible(timeout=60_000)


def test_a_plan_is_written_confirmed_saved_and_linked(offline: Page, voila_url: str, tmp_path: Path) -> None:
    page = offline
    _opened(page, voila_url)
    page.get_by_role("button", name=PLAN, exact=True).click()
    steps = page.locator(".planner-steps")
    expect(steps.get_by_text("no example is written down")).to_be_visible()
    for label, text in (
        ("What the model is trained for", "answers"),
        ("Data (file or folder)", "a.jsonl"),
        ("One example, made up", "{}"),
    ):
        steps.get_by_label(label).fill(text)
        steps.get_by_label(label).blur()
    first = steps.locator(".planner-card", has_text="Target model")
    expect(first.locator(".planner-pill")).to_have_text(re.compile("ready"))
    first.get_by_role("button", name="Confirm this step").click()
    expect(first.locator(".planner-pill")).to_have_text(re.compile("passed"))
    with page.expect_download() as download:
        steps.get_by_role("link", name="Save the plan").click()
    saved = tmp_path / "plan.json"
    download.value.save_as(saved)
    assert json.loads(saved.read_text())["purpose"] == "answers"
    # the address holds the plan: a reload, and another tab, begin with it
    expect(page).to_have_url(re.compile("plan="))
    _opened(page, page.url)
    page.get_by_role("button", name=PLAN, exact=True).click()
    expect(steps.get_by_label("What the model is trained for")).to_have_value("answers")
    # a plan from a file takes the place of this one
    changed = json.loads(saved.read_text()) | {"purpose": "summaries"}
    changed["job"]["lora_rank"] = 24
    saved.write_text(json.dumps(changed))
    steps.locator("input[type=file]").first.set_input_files(saved)
    expect(steps.get_by_label("What the model is trained for")).to_have_value("summaries")
    expect(page.get_by_role("textbox", name="LoRA rank")).to_have_text("24")


def test_report_and_training_files_are_saved_by_the_browser(offline: Page, voila_url: str, tmp_path: Path) -> None:
    page = offline
    _opened(page, voila_url)
    page.get_by_role("button", name=PLAN, exact=True).click()
    for make, save, name in (
        ("Make the report", "Save the report", "report.html"),
        ("Make the training files", "Save the training files", "trl.zip"),
    ):
        page.get_by_role("button", name=make).click()
        with page.expect_download() as download:
            page.get_by_role("link", name=save).click()
        assert download.value.suggested_filename == name
