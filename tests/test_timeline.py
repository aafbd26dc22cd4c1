"""The dry run's chart, page, tables and sentences, from a run made by hand."""

import json
from pathlib import Path

import pytest

from planner.comparison import components_table, dry_verdict_text, instants_table, peak_text, run_text
from planner.dryrun import DryRun
from planner.dryrun.compare import Compared, by_component, by_instant, by_level
from planner.dryrun.summary import DryRunSummary, summarised
from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.plan import Plan, make_plan
from planner.timeline import memory_timeline, write_page
from planner.units import GiB, format_share


@pytest.fixture
def plan(small_dry_run: DryRun, rtx_4090: Gpu) -> Plan:
    return make_plan(small_dry_run.job, rtx_4090)


@pytest.mark.parametrize("language", ["en", "tr"])
def test_areas_add_up_and_the_peak_says_what_is_alive(small_summary: DryRunSummary, rtx_4090: Gpu, language: str) -> None:
    figure = memory_timeline(small_summary, rtx_4090, language)
    json.dumps(figure.spec)
    areas = [trace["y"] for trace in figure.spec["data"] if "stackgroup" in trace]
    allocated, reserved = (trace["y"] for trace in figure.spec["data"] if "stackgroup" not in trace)
    assert [sum(sizes) for sizes in zip(*areas, strict=True)] == pytest.approx(allocated, abs=0.001)
    assert all(held >= live for held, live in zip(reserved, allocated, strict=True))
    peak, *phases, _limit = figure.spec["layout"]["annotations"]
    assert peak["y"] == max(allocated) == 8.5
    assert "2.0 GiB" in peak["text"].replace(",", ".") and "layers.*.mlp" in peak["text"]
    assert [phase["text"] for phase in phases] == [
        "load" if language == "en" else "yükleme", "forward", "backward", "optimizer",
    ]  # fmt: skip
    assert figure.alt.replace(",", ".").count("8.5 GiB") == 1


def test_nothing_in_a_model_s_names_is_markup(small_summary: DryRunSummary, rtx_4090: Gpu) -> None:
    line = small_summary.peak_lines[0]._replace(name="<img src=x>")
    (peak, *_) = memory_timeline(
        small_summary.model_copy(update={"peak_lines": (line,)}), rtx_4090
    ).spec["layout"]["annotations"]  # fmt: skip
    assert "<img" not in peak["text"]


def test_the_page_needs_nothing_else_and_is_written_whole(small_summary: DryRunSummary, rtx_4090: Gpu, tmp_path: Path) -> None:
    figure = memory_timeline(small_summary, rtx_4090)
    page = tmp_path / "out.html"
    write_page(page, figure, "<b>a model</b>", ["One & two."])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")
    assert "&lt;b&gt;a model" in text and "One &amp; two." in text
    assert "<script src" not in text and "<link" not in text
    with pytest.raises(PlannerError, match="cannot be written"):
        write_page(tmp_path / "none" / "out.html", figure, "", [])
    with pytest.raises(PlannerError, match="cannot be written"):
        write_page(tmp_path, figure, "", [])
    assert list(tmp_path.iterdir()) == [page]


def test_both_sides_are_compared_part_by_part(small_summary: DryRunSummary, plan: Plan) -> None:
    assert Compared("x", 90, 100).difference == pytest.approx(-0.1)
    assert Compared("x", 90, 0).difference is None is Compared("x", None, 100).difference
    weights = by_component(plan.memory, small_summary)[0]
    assert (weights.name, weights.dry_run) == ("weights", 4 * GiB)
    assert [row.dry_run for row in by_instant(plan.memory, small_summary)] == list(small_summary.allocated_at.values())
    assert by_level(plan.memory, small_summary)[0] == ("allocated", plan.memory.peak.allocated, 8.5 * GiB)


@pytest.mark.parametrize("language", ["en", "tr"])
def test_tables_have_a_cell_for_each_title(small_summary: DryRunSummary, plan: Plan, language: str) -> None:
    for table in (components_table(plan, small_summary, language), instants_table(plan, small_summary, language)):
        assert {len(row) for row in table.rows} == {4}
        assert len(table.text().splitlines()) == len(table.rows) + 1
    assert table.rows[-3][2] == ("8.5 GiB" if language == "en" else "8,5 GiB")


def test_an_instant_that_a_dry_run_does_not_pass_is_said(small_summary: DryRunSummary, plan: Plan) -> None:
    evaluated = make_plan(plan.job.changed(evaluation=True, eval_micro_batch_size=512), plan.gpu)
    assert evaluated.memory.peak.instant == "evaluation"
    assert "evaluation, which a dry run does not pass" in peak_text(evaluated, small_summary, "en")
    assert "evaluation" not in peak_text(plan, small_summary, "en")
    assert ("evaluation", "–", "–") in [(row[0], row[2], row[3]) for row in instants_table(evaluated, small_summary).rows]


def test_the_verdict_says_who_ran_out_or_why_it_just_fits(
    small_dry_run: DryRun, small_summary: DryRunSummary, plan: Plan
) -> None:
    def said(usable_bytes: float) -> tuple[str, str]:
        gpu = plan.gpu.model_copy(update={"memory_bytes": int(usable_bytes), "memory_basis": "program"})
        found = summarised(small_dry_run, gpu, seconds=1)
        return found.verdict, dry_verdict_text(Plan(plan.job, gpu, plan.memory), found, "en")

    assert dry_verdict_text(plan, small_summary, "en").startswith("Fits RTX 4090")
    device = small_summary.peak.device
    assert said(device)[0] == "tight"
    verdict, text = said(0.95 * device)
    assert verdict == "tight"
    assert "nine of ten published runs took" in text and "Runs out of memory on" in text
    verdict, text = said(8 * GiB)
    assert verdict == "does not fit" and text.startswith("Runs out of memory")
    assert "(step 1, backward): lm_head: _log_softmax_backward_data asks for 2.0 GiB with 6.0 GiB allocated" in text
    assert "3 of 30 blocks in 12 s" in run_text(plan, small_summary, "en")


def test_a_difference_has_its_sign_and_no_minus_zero() -> None:
    assert [format_share(share) for share in (0.0123, -0.1, -0.0001, 0)] == ["+1.2 %", "-10.0 %", "0.0 %", "0.0 %"]
    assert format_share(-0.0123, language="tr") == "-%1,2"
