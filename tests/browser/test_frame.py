"""The frame that the workbook sits in, tried with a toy: charts, page and template in each place they are served."""

import re
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from planner.plotly_js import plotly_js

BARS = ".planner-plot .bars .point path"


def run_in_lab(page: Page, url: str, notebook: str) -> None:
    """Open a notebook in JupyterLab and run it by commands: clicks and keys race with the page."""
    page.goto(f"{url}/lab/tree/{notebook}?reset")  # the server remembers open tabs
    page.wait_for_function("window.jupyterapp?.commands.hasCommand('notebook:run-all-cells')")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.evaluate("""async () => {
        const panel = window.jupyterapp.shell.currentWidget;
        await panel.context.ready;
        await panel.sessionContext.ready;
        await window.jupyterapp.commands.execute('notebook:run-all-cells');
    }""")


def title(page: Page) -> str:
    return page.locator(".planner-plot .gtitle").first.text_content() or ""


def plotly_loads(page: Page) -> int:
    """How often plotly.js was put into the page."""
    return int(page.evaluate("document.querySelectorAll('script#planner-plotly, script[src^=\"blob:\"]').length"))


def check_charts(page: Page) -> None:
    """Two charts, one plotly.js, redrawn when the slider moves, spoken by their alternative."""
    expect(page.locator(BARS)).to_have_count(4, timeout=60_000)
    assert plotly_loads(page) == 1
    assert title(page) == "count 3"
    slider = page.get_by_role("slider", name="Count")
    slider.focus()
    slider.press("ArrowRight")
    expect(page.locator(".planner-plot .gtitle").first).to_have_text("count 4")
    expect(page.get_by_role("img", name="a toy")).to_have_count(2)
    assert not page.locator(".modebar-btn").count()


def test_plotly_is_built_as_the_trimming_expects() -> None:
    source = plotly_js()
    assert re.search(r"\.register\(\[\w+\(\)\]\)", source), "a new plotly: look at planner/plotly_js.py"


def test_voila(offline: Page, toy_url: str) -> None:
    offline.goto(toy_url)
    check_charts(offline)
    assert offline.title() == "Toy"
    assert offline.evaluate("document.documentElement.lang") == "tr"
    expect(offline.get_by_role("main")).to_have_count(1)
    expect(offline.get_by_role("main").locator(".planner-app")).to_have_count(1)
    assert offline.locator("link[rel=icon]").get_attribute("href", timeout=1000).startswith("data:image/svg+xml")
    assert not offline.locator("#planner-loading").is_visible()


def test_voila_beside_lab_as_on_binder(offline: Page, lab_url: str) -> None:
    offline.goto(f"{lab_url}/voila/render/toy.ipynb")
    check_charts(offline)


def test_lab(offline: Page, lab_url: str) -> None:
    run_in_lab(offline, lab_url, "toy.ipynb")
    check_charts(offline)
    assert offline.evaluate("document.documentElement.lang") != "tr", "the page around the app is JupyterLab's"
    # A living kernel and a new page: the chart must not show older numbers than the slider.
    offline.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    offline.goto(f"{lab_url}/lab/tree/toy.ipynb")
    offline.wait_for_selector(BARS, timeout=60_000)
    assert title(offline).split()[-1] == offline.locator(".planner-app .widget-readout").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_follow_light_and_dark(offline: Page, toy_url: str, scheme: str) -> None:
    offline.emulate_media(color_scheme=scheme)
    offline.goto(toy_url)
    offline.wait_for_selector(BARS, timeout=60_000)
    luminance = "e => getComputedStyle(e).fill.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)"
    text = offline.locator(".planner-plot .xtick text").first.evaluate(luminance)
    ground = offline.evaluate(
        "getComputedStyle(document.querySelector('.planner-app')).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert (text > 384) == (scheme == "dark")
    assert (sum(ground[:3]) < 384) == (scheme == "dark")


@pytest.mark.parametrize("path", ["/voila/files/toy.ipynb", "/api/contents", "/api/kernelspecs", "/voila/files/../../etc/passwd"])
def test_nothing_but_the_page_is_served(toy_url: str, path: str) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(toy_url + path)
    with refused.value as answer:
        assert answer.code in (403, 404)


def test_code_is_not_shown(toy_url: str) -> None:
    with urlopen(f"{toy_url}/?template=lab&theme=dark") as answer:
        html = answer.read().decode()
    assert "ipywidgets.IntSlider" not in html
    assert 'id="planner-loading"' in html
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//(?!127)[^"'> ]+""", html)
