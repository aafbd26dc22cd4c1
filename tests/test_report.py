"""The report for people who decide: what it says, that it fetches nothing, and that nothing in a plan's texts is code."""

import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_texts import SAME, Recorded

from planner import Job, find_model, texts
from planner.cli import planner
from planner.permalink import plan_of_query
from planner.pilot.record import Measurement
from planner.planfile import Acceptance, Care, DataVersion, PlanFile, write_plan
from planner.ranking import Wishes
from planner.report import report
from planner.report_page import report_html, report_markdown

DAY = date(2026, 12, 6)
JOB = Job(architecture=find_model("Llama-3.1-8B"), gradient_accumulation_steps=16)
LOG = {
    "job": JOB.model_dump(mode="json"),
    "state": "done",
    "steps": 9,
    "losses": (3.0, 2.9, 2.8, 2.5, 2.4, 2.3, 2.2, 2.1, 2.0),
    "step_seconds": 1.5,
}
PILOT = Measurement(
    **LOG, environment={"gpu": "NVIDIA GeForce RTX 4090"}, nvml={"mean_utilisation": 0.97},
    phases={"backward": {"peak_allocated_bytes": 12 * 2**30, "peak_reserved_bytes": 13 * 2**30}},
)  # fmt: skip
PLAN = PlanFile(
    title="Support",
    job=JOB,
    wishes=Wishes(spot=True, deadline_hours=72),
    pilot=PILOT,
    acceptance=Acceptance(step_s=2),
    care=Care(classification="personal", access=("us",)),
)


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_says_verdict_cost_criteria_care_and_evidence() -> None:
    page = Page(report_html(PLAN, DAY))
    for said in (
        "Support",
        "Fits RTX 4090",
        "done after",
        "RTX 4090",
        "interruptions",
        "seconds a step",
        "training is held back by compute",
        "who may access",
        "allocated",
    ):
        assert said in page.text
    assert page.tags[0] == ("html", {"lang": "en"})
    link = re.search(r"\?plan=\S+", page.text)
    assert link and plan_of_query(link[0]) == PLAN.changed(pilot=None)


@pytest.mark.parametrize("language", ["en", "tr"])
def test_nothing_is_fetched_and_nothing_runs(language: str) -> None:
    page = report_html(PLAN, DAY, language)
    tags = Page(page).tags
    assert not {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "a", "object", "embed"}
    assert not [attrs for _, attrs in tags if {"src", "href"} & attrs.keys() or any(name.startswith("on") for name in attrs)]
    assert "url(" not in page and "@import" not in page
    assert page.startswith(f'<!doctype html>\n<html lang="{language}"')


def test_all_that_the_report_looks_up_has_a_turkish_one(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    monkeypatch.setattr(texts, "TURKISH", recorded)
    for plan in (
        PLAN,
        PLAN.changed(pilot=None, gpu="t4", wishes=Wishes()),
        PLAN.changed(job=JOB.changed(method="full"), pilot=None),
    ):
        report_html(plan, DAY, "tr")
    commands = {text for text in recorded.missing if text.startswith(("rm ", "~/"))}
    assert recorded.missing - SAME - commands == set()


@pytest.mark.parametrize(
    "attack", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "[x](javascript:alert(1))", "| a | b |", "`x`\n# y"]
)
def test_texts_of_a_plan_are_text(attack: str) -> None:
    plan = PlanFile(
        title=attack, purpose=attack, job=JOB.changed(architecture=JOB.architecture.model_copy(update={"name": attack})),
        data=DataVersion(name=attack), care=Care(access=(attack,), deletion=attack, region=attack),
    )  # fmt: skip
    assert not {tag for tag, _ in Page(report_html(plan, DAY)).tags} & {"script", "img", "a"}
    lines = report_markdown(plan, DAY).split("\n")
    assert not [line for line in lines if re.search(r"(?<!\\)<|(?<!\\)\[|(?<!\\)`", line)]
    rows = [len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("| ") and "access" in line]
    assert rows == [4]


def test_bars_lie_where_the_figure_says() -> None:
    section = next(section for section in report(PLAN, DAY) if section.figure)
    assert section.figure
    page = report_html(PLAN, DAY)
    bars = [
        float(width) for width in re.findall(r'class="part" style="left:[\d.]+%;width:([\d.]+)%', page.split("</section>")[1])
    ]
    sizes = [size for trace in section.figure.spec["data"] for size in trace["y"]]
    assert sum(bars) / max(bars) == pytest.approx(sum(sizes) / max(sizes), rel=1e-3)


def test_the_command_writes_a_page_or_markdown(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    write_plan(plan, PLAN)
    for name in ("report.html", "report.md"):
        ran = CliRunner().invoke(planner, ["report", str(plan), "--out", str(tmp_path / name), "--language", "tr"])
        assert ran.exit_code == 0 and "RTX 4090" in (tmp_path / name).read_text(encoding="utf-8")
    assert CliRunner().invoke(planner, ["report", str(plan), "--out", "-"]).output.startswith("# Support")


@pytest.mark.parametrize(
    ("arguments", "said"), [(["none.json"], "there is no file"), (["plan.json", "--out", "report.docx"], "ends in .html or .md")]
)
def test_bad_input_is_one_sentence(arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_plan("plan.json", PLAN)
    ran = CliRunner().invoke(planner, ["report", *arguments])
    assert ran.exit_code == 2 and said in ran.output and ran.output.count("\n") == 1
