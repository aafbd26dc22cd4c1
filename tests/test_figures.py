"""Charts are plain plotly JSON whose bars add up to the plan, with a sentence that says the same."""

import json

import pytest

from planner.architecture import Architecture
from planner.figures import Figure, memory_against, memory_by_instant, memory_by_method
from planner.hardware import Gpu
from planner.job import Job
from planner.plan import compared_methods, make_plan, sweep
from planner.remedies import remedies
from planner.tables import cards_table, explain_table, lines_text, methods_table, remedies_table
from planner.units import GiB, format_gib


@pytest.mark.parametrize("language", ["en", "tr"])
def test_bars_add_up_to_what_the_card_must_hold(llama_3_8b: Architecture, rtx_4090: Gpu, language: str) -> None:
    plans = [make_plan(job, rtx_4090) for job in compared_methods(Job(architecture=llama_3_8b))]
    figure = memory_by_method(plans, language)
    json.dumps(figure.spec)
    for i, plan in enumerate(plans):
        total = sum(trace["y"][i] for trace in figure.spec["data"])
        assert total * GiB == pytest.approx(plan.memory.peak.device, rel=1e-3)
        assert format_gib(plan.memory.peak.device, language=language) in figure.alt
    (limit,) = figure.spec["layout"]["shapes"]
    assert limit["y0"] * GiB == rtx_4090.usable_memory_bytes


def test_instants_add_up_and_the_peak_is_marked(llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    plan = make_plan(Job(architecture=llama_3_8b, evaluation=True), rtx_4090)
    figure = memory_by_instant(plan)
    for i, total in enumerate(plan.memory.allocated_at.values()):
        assert sum(trace["y"][i] for trace in figure.spec["data"]) * GiB == pytest.approx(total, rel=1e-3)
    assert any("peak" in annotation["text"] for annotation in figure.spec["layout"]["annotations"])


def test_a_curve_has_its_band_and_the_cards_that_are_in_sight(llama_3_8b: Architecture, rtx_4090: Gpu, t4: Gpu) -> None:
    job, lengths = Job(architecture=llama_3_8b), [512, 1024, 2048]
    figure = memory_against("sequence_length", lengths, sweep(job, rtx_4090, sequence_length=lengths), 1024, [rtx_4090, t4])
    low, high, line = figure.spec["data"]
    assert all(a < b < c for a, b, c in zip(low["y"], line["y"], high["y"], strict=True))
    assert len(figure.spec["layout"]["shapes"]) == 2
    assert figure.alt.startswith("Sequence length")


def test_a_figure_becomes_one_of_plotlys(llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    drawn = memory_by_instant(make_plan(Job(architecture=llama_3_8b), rtx_4090)).plotly()
    assert len(drawn.data) > 3
    assert isinstance(Figure({}, ""), tuple)


def test_tables_have_a_title_for_each_cell(llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    plan = make_plan(Job(architecture=llama_3_8b), rtx_4090)
    for table in (
        methods_table([plan]),
        cards_table([plan]),
        explain_table(plan.memory),
        remedies_table(remedies(plan.job, rtx_4090)),
    ):
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert list(table.frame().columns) == list(table.columns)
        assert table._repr_html_().count("<td") == len(table.rows) * len(table.columns)


def test_the_explanation_holds_every_line_with_its_source(llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    memory = make_plan(Job(architecture=llama_3_8b), rtx_4090).memory
    text = lines_text(memory)
    for line in memory.lines:
        if line.bytes:
            assert line.formula in text
            assert line.source in text
