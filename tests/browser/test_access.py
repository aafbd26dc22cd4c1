"""The page for people who do not see it, or use no mouse: axe-core's rules on every view, in both languages and themes."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

VIEWS = {
    "en": ("Three questions", "Memory", "Cards and offers", "Plan and run"),
    "tr": ("Üç soru", "Bellek", "Kartlar ve teklifler", "Plan ve koşu"),
}
LANGUAGE = {"en": "English", "tr": "Türkçe"}


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {node['target']} {node['html'][:150]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "tr"])
def test_no_serious_finding(offline: Page, voila_url: str, language: str, theme: str) -> None:
    offline.emulate_media(color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce")
    offline.goto(voila_url)
    expect(offline.locator(".planner-plot .bars .point path").first).to_be_visible(timeout=60_000)
    offline.get_by_role("button", name=LANGUAGE[language]).click()
    found: list[str] = []
    for view in VIEWS[language]:
        offline.get_by_role("button", name=view, exact=True).click()
        expect(offline.locator(".planner-results:visible").first).to_be_visible()
        expect(offline.locator(".planner-results:visible").first).not_to_be_empty()
        expect(offline.locator(".planner-plot:visible:not([aria-label])")).to_have_count(0)
        found += [f"{view}: {line}" for line in serious(offline)]
    assert not found, "\n".join(found)


def test_the_guide_is_walked_by_keyboard_to_the_same_plan(offline: Page, voila_url: str) -> None:
    offline.goto(voila_url)
    offline.get_by_role("button", name="Three questions").press("Enter")
    expect(offline.locator(".planner-answer")).to_have_count(4, timeout=60_000)
    before = offline.locator(".planner-answer").last.text_content()
    offline.keyboard.press("Tab")
    for _ in range(12):  # to the third question, by Tab alone
        if offline.evaluate("document.activeElement.closest('.widget-dropdown')?.textContent.includes('matters')"):
            break
        offline.keyboard.press("Tab")
    offline.keyboard.press("ArrowDown")
    expect(offline.locator(".planner-answer").last).not_to_have_text(before or "")
    card = offline.locator(".planner-answer").nth(1).text_content() or ""
    term = offline.locator(".planner-term:visible").first
    expect(term.get_by_role("tooltip")).to_be_hidden()
    term.focus()
    expect(term.get_by_role("tooltip")).to_be_visible()
    offline.get_by_role("button", name="Open this plan").press("Enter")
    expect(offline.locator(".planner-verdict .planner-pill")).to_contain_text("fits")
    name = card.rsplit(" x ", 1)[1].split(" ")[0]
    expect(offline.locator(".planner-verdict")).to_contain_text(name)
