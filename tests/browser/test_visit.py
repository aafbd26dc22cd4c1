"""The workbook in Chromium, as a visitor and as an engineer meet it."""

import re
import subprocess
from collections.abc import Callable
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect
from test_frame import BARS, run_in_lab


@pytest.fixture
def workbook(offline: Page, voila_url: str) -> Page:
    offline.goto(voila_url)
    expect(offline.locator(BARS).first).to_be_attached(timeout=60_000)
    return offline


def labels(page: Page) -> str:
    """The totals written on the bars of the first chart."""
    return "|".join(page.locator(".planner-plot").first.locator(".annotation-text").all_text_contents())


def test_verdict_charts_and_tables_are_there(workbook: Page) -> None:
    expect(workbook.locator(".planner-verdict .planner-pill")).to_contain_text("fits")
    expect(workbook.get_by_role("img", name=re.compile("Full fine-tuning: Does not fit"))).to_be_visible()
    expect(workbook.locator(".planner-table").first).to_contain_text("QLoRA")
    assert workbook.title() == "Fine-tuning memory planner"


def test_a_slider_moves_the_bars(workbook: Page) -> None:
    before = labels(workbook)
    slider = workbook.get_by_role("slider", name="Sequence length")
    slider.focus()
    slider.press("ArrowRight")
    qlora = workbook.locator(".planner-plot").first.locator(".annotation-text").nth(2)
    expect(qlora).not_to_have_text(before.split("|")[2])


def test_a_mistyped_model_is_said_and_the_bars_stay(workbook: Page) -> None:
    before = labels(workbook)
    box = workbook.get_by_placeholder("for example Llama-3.1-8B")
    box.fill("Lama-3.1-8B")
    box.press("Enter")
    expect(workbook.get_by_role("alert")).to_contain_text("did you mean")
    assert labels(workbook) == before
    box.fill("Qwen/Qwen2.5-7B")
    box.press("Enter")
    expect(workbook.get_by_role("alert")).to_have_count(0)


def test_the_page_turns_turkish_with_its_language_and_its_numbers(workbook: Page) -> None:
    workbook.get_by_role("button", name="Türkçe").click()
    expect(workbook.locator(".planner-verdict")).to_contain_text("kartına sığar")
    expect(workbook.locator(".planner-verdict")).to_contain_text(re.compile(r"\d+,\d GiB"))
    expect(workbook.locator("html")).to_have_attribute("lang", "tr")
    expect(workbook.get_by_role("slider", name="LoRA rank")).to_be_visible()


def test_every_part_opens_to_formula_and_source(workbook: Page) -> None:
    part = workbook.locator(".planner-why details", has_text="quantised weights").first
    part.locator("summary").click()
    expect(part).to_contain_text("P_q / 2")
    expect(part).to_contain_text("arXiv:2305.14314")


def test_a_dry_run_is_watched_and_then_drawn(workbook: Page) -> None:
    pytest.importorskip("torch")
    box = workbook.get_by_placeholder("for example Llama-3.1-8B")
    box.fill("HuggingFaceTB/SmolLM2-135M")
    box.press("Enter")
    expect(workbook.locator(".planner-controls")).to_contain_text("134.5 M parameters")
    charts = workbook.locator(".planner-plot").count()
    button = workbook.get_by_role("button", name="Dry run")
    card = workbook.locator(".planner-card", has=button)
    live = card.locator(".planner-live[aria-live=polite]")
    button.press("Enter")
    expect(live).to_contain_text("loading PyTorch", timeout=20_000)
    card.get_by_role("button", name="Cancel").click()
    expect(live).to_contain_text("cancelled")
    button.click()
    expect(workbook.locator(".planner-plot")).to_have_count(charts + 1, timeout=180_000)
    expect(workbook.get_by_role("img", name=re.compile("Memory is fullest at"))).to_have_count(2)
    expect(card.locator(".scatterlayer .trace").first).to_be_attached(timeout=20_000)
    expect(card.locator(".annotation-text").first).to_contain_text("peak")
    expect(card.locator(".planner-table")).to_have_count(2)
    workbook.set_viewport_size({"width": 390, "height": 844})
    assert workbook.evaluate("document.documentElement.scrollWidth") == 390


def test_on_a_phone_the_verdict_comes_first_and_nothing_is_cut(workbook: Page) -> None:
    workbook.set_viewport_size({"width": 390, "height": 844})
    expect(workbook.locator(".planner-verdict .planner-pill")).to_be_in_viewport()
    assert workbook.evaluate("document.documentElement.scrollWidth") == 390


def test_the_same_app_in_jupyterlab(offline: Page, lab_url: str) -> None:
    run_in_lab(offline, lab_url, "workbook.ipynb")
    expect(offline.locator(BARS).first).to_be_attached(timeout=60_000)
    expect(offline.locator(".planner-verdict .planner-pill")).to_contain_text("fits")


def test_planner_lab_opens_on_the_workbook(start: Callable[..., str]) -> None:
    url = start("-c", "from planner.serve import serve_lab; serve_lab(port={port}, open_browser=False)")
    with urlopen(f"{url}/") as answer:  # the login page of a server that asks for its token, on the way to the notebook
        assert "workbook.ipynb" in answer.url


def test_cards_and_offers_answer_and_follow_a_wish(workbook: Page) -> None:
    workbook.get_by_role("button", name="Cards and offers").click()
    answers = workbook.locator(".planner-advice[aria-live=polite]")
    expect(answers).to_contain_text("Cheapest")
    expect(workbook.get_by_role("img", name=re.compile("offers answer; the cheapest costs"))).to_be_visible()
    expect(workbook.get_by_role("img", name=re.compile("the longest stage is training"))).to_be_visible()
    expect(workbook.locator(".planner-table").filter(has_text="days old").first).to_be_visible()
    deadline = workbook.get_by_label("Done within (hours)")
    deadline.fill("0.01")
    deadline.press("Enter")
    expect(answers).not_to_contain_text("Cheapest")
    expect(answers).to_contain_text("not done by the deadline")
    deadline.fill("soon")
    deadline.press("Enter")
    expect(workbook.get_by_role("alert")).to_contain_text("it must be a number")
    expect(workbook.get_by_role("button", name="Fetch today's prices")).to_have_count(0)  # its owner's switch


def test_a_page_whose_session_has_ended_says_so_and_opens_again_on_the_same_plan(workbook: Page) -> None:
    slider = workbook.get_by_role("slider", name="Sequence length")
    slider.focus()
    before = slider.get_attribute("aria-valuetext") or ""
    slider.press("ArrowRight")
    expect(slider).not_to_have_attribute("aria-valuetext", before)
    expect(workbook).to_have_url(re.compile(r"\?plan="))
    chosen, banner = slider.get_attribute("aria-valuetext") or "", workbook.locator(".planner-connection")
    expect(banner).to_be_hidden()
    kernel = workbook.evaluate("JSON.parse(document.getElementById('jupyter-config-data').textContent).kernelId")
    subprocess.run(["pkill", "-9", "-f", f"kernel-{kernel}"], check=True)
    expect(banner).to_contain_text("This session has ended", timeout=30_000)
    expect(workbook.locator(".planner-layout")).to_have_attribute("inert", "")
    banner.get_by_role("button", name="Open it again").click()
    expect(workbook.get_by_role("slider", name="Sequence length")).to_have_attribute("aria-valuetext", chosen, timeout=60_000)
