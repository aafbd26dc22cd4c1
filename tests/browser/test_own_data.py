"""A visitor's own data in Chromium: sent, measured, drawn under the sequence length, used; and what is too large is held back."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect
from test_frame import BARS

from planner.catalogues import data_folder


def data_card(page: Page, url: str) -> Locator:
    page.goto(url)
    expect(page.locator(BARS).first).to_be_attached(timeout=60_000)
    return page.locator(".planner-card", has=page.get_by_role("heading", name="Your data"))


def test_a_sample_is_measured_and_used(offline: Page, voila_url: str) -> None:
    card = data_card(offline, voila_url)
    card.locator("input[type=file]").set_input_files(data_folder() / "samples" / "gpu_rental_en.jsonl")
    expect(card).to_contain_text("36 usable rows", timeout=20_000)
    chart = card.get_by_role("img", name=re.compile("Half of the rows"))
    chart.scroll_into_view_if_needed()
    expect(card.locator(".annotation-text")).to_have_text("2,048")
    slider = offline.get_by_role("slider", name="Sequence length")
    slider.press("ArrowLeft")
    chart.scroll_into_view_if_needed()
    expect(card.locator(".annotation-text")).to_have_text("1,024")
    card.get_by_role("button", name="Use it in the plan").click()
    expect(card).to_contain_text("Cards and offers now count with these rows")
    offline.get_by_role("button", name="Cards and offers").click()
    expect(offline.locator(".widget-slider", has_text="Training examples").locator(".widget-readout")).to_have_text("36")


def test_what_is_no_data_is_one_sentence_and_what_is_too_large_is_held_back(
    offline: Page, voila_url: str, tmp_path: Path
) -> None:
    card = data_card(offline, voila_url)
    (tmp_path / "empty.jsonl").touch()
    card.locator("input[type=file]").set_input_files(tmp_path / "empty.jsonl")
    expect(card.locator(".planner-live")).to_contain_text("'empty.jsonl' is empty")
    (tmp_path / "large.txt").write_bytes(b"a row\n" * 2_000_000)
    card.locator("input[type=file]").set_input_files(tmp_path / "large.txt")
    expect(card.locator(".planner-live")).to_contain_text("'large.txt' is no JSONL, CSV or text of at most 9 MB")
    (tmp_path / "most.txt").write_bytes(b"a row\n" * 1_490_000)
    card.locator("input[type=file]").set_input_files(tmp_path / "most.txt")
    expect(card).to_contain_text("1,490,000 usable rows", timeout=60_000)
