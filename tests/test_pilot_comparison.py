"""A record of a pilot beside its predictions: rows, causes, chart, calibration, and a replay of every record that is kept."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.catalogues import data_folder, find_gpu, load_gpus
from planner.cli import planner
from planner.compute import SpeedAssumptions, step_time
from planner.dryrun.result import DryRun
from planner.dryrun.summary import summarised
from planner.errors import PlannerError
from planner.job import Job
from planner.memory import Assumptions, memory_breakdown
from planner.pilot import read_measurement
from planner.pilot.calibrate import calibrated
from planner.pilot.causes import peak_bytes
from planner.pilot.compare import COMPONENTS, Compared, card_of, compared, verdict
from planner.pilot.record import Measurement, write_measurement
from planner.pilot_views import calibration_table, cause_texts, comparison_table, components_chart
from planner.placement import Demand, Placements
from planner.plan import cards_that_fit, largest_that_fits, make_plan
from planner.sentences import note_text, note_texts
from planner.units import GiB, MiB
from planner.workbook import Workbook
from planner.workbook.pilot_comparison import PilotComparison

RTX_4090, A100 = find_gpu("rtx-4090-24"), find_gpu("a100-sxm4-80")
ON_A_4090 = {"device": "cuda", "gpu": "NVIDIA GeForce RTX 4090", "date": "2026-12-06"}


def record(job: Job, *, scale: float = 1.0, slack: float = 1.2, context: int = 500 * MiB, **fields: Any) -> Measurement:
    """A pilot on a 4090 whose tensors are `scale` times the closed form's, logged as the worker logs them."""
    memory = memory_breakdown(job, RTX_4090)
    at = {name: scale * float(size) for name, size in memory.allocated_at.items()}
    parts = memory.components_at("forward")
    fp32_head = job.method == "full" or job.quantization != "none"  # k-bit preparation makes it so
    head = 2 * job.architecture.vocab_size * job.architecture.hidden_size if fp32_head else 0  # as autocast copies it
    saved = scale * float(parts["activations"] + parts.get("temporaries", 0) - head)
    resident = at["forward"] - saved - scale * float(parts["logits"] + head)
    peaks = {
        "load": at["load"], "resident": resident, "blocks": resident + saved, "forward": at["forward"],
        "backward": max(at["loss"], at["backward_start"], at["backward_end"]), "optimizer": at["optimizer"],
    }  # fmt: skip
    reserved = slack * max(peaks.values())
    phases = {
        name: {
            "allocated_bytes": int(size), "reserved_bytes": int(reserved), "peak_allocated_bytes": int(size), "peak_reserved_bytes": int(reserved),
        }
        for name, size in peaks.items()
    }  # fmt: skip
    step = memory.components_at("optimizer")
    values: dict[str, Any] = {
        "job": job.model_dump(mode="json"), "state": "done", "environment": ON_A_4090, "phases": phases, "steps": 20, "steps_asked": 20,
        "components": {name: int(scale * float(step.get(name, 0))) for name in COMPONENTS[:5]},
        "step_seconds": float(step_time(job, RTX_4090).seconds), "nvml": {"peak_used_bytes": float(int(reserved) + context)},
    }  # fmt: skip
    values |= fields
    rate = job.micro_batch_size * job.sequence_length / values["step_seconds"]
    return Measurement(**{"tokens_per_s": rate, **values})


@pytest.fixture
def job(llama_3_8b: Any) -> Job:
    return Job(architecture=llama_3_8b, method="qlora", sequence_length=1024)


def by_name(rows: list[Compared]) -> dict[str, Compared]:
    return {row.name: row for row in rows}


# ---- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{}, {"gradient_checkpointing": "off"}, {"method": "lora"}, {"method": "full", "optimizer": "adamw-8bit"}],
    ids=str,
)
def test_a_record_of_what_was_planned_has_no_residual(job: Job, fields: dict[str, Any]) -> None:
    job = job.changed(**{"quantization": "none" if "method" in fields else "nf4", **fields})
    found = record(job, slack=1.11, context=430 * MiB)
    rows = compared(found)
    assert {row.name for row in rows} >= {
        *COMPONENTS,
        "load",
        "forward",
        "backward",
        "optimizer",
        "reserved",
        "on the card",
        "step",
    }
    for row in rows:
        assert row.closed_form == pytest.approx(row.measured, rel=1e-4, abs=16) and row.cause is None, row
    assert sum(row.measured or 0 for row in rows if row.name in ("slack", "context")) == pytest.approx(
        found.nvml["peak_used_bytes"] - peak_bytes(found, "allocated")
    )


def test_the_residual_has_its_sign_and_its_share(job: Job) -> None:
    row = by_name(compared(record(job, scale=0.8)))["forward"]
    assert row.difference == pytest.approx(0.25)
    assert row.residual == pytest.approx(0.2 * (row.closed_form or 0), rel=1e-6)


def test_logits_are_not_known_where_a_block_was_fuller_than_the_loss(job: Job) -> None:
    found = record(job)
    fuller = {name: {**phase, "peak_allocated_bytes": 20 * GiB} for name, phase in found.phases.items()}
    assert by_name(compared(found.model_copy(update={"phases": fuller})))["logits"].measured is None


def test_a_dry_run_is_the_third_side(small_dry_run: DryRun) -> None:
    found = record(small_dry_run.job)
    rows = by_name(compared(found, dry_run=summarised(small_dry_run, RTX_4090, seconds=1.0)))
    assert rows["forward"].dry_run == small_dry_run.allocated_at["forward"]
    assert rows["slack"].dry_run == small_dry_run.peak.reserved - small_dry_run.peak.allocated
    assert rows["context"].dry_run is None  # it assumes one, as the closed form does
    table = comparison_table(list(rows.values()))
    assert table.columns[2] == "Dry run" and all(len(row) == len(table.columns) for row in table.rows)
    figure = components_chart(list(rows.values()), "the plan holds")
    assert [trace["name"] for trace in figure.spec["data"]] == ["Closed form", "Dry run", "Pilot"]


# ---- causes ------------------------------------------------------------------------------------------------------------


def cause(rows: list[Compared], name: str) -> str:
    found = by_name(rows)[name].cause
    return note_text(found, "en") if found else ""


def test_tables_of_4_bit_layers_explain_what_scales_have_more(job: Job) -> None:
    found = record(job)
    layers = 32 * 7
    more = {**found.components, "quantization_state": found.components["quantization_state"] + layers * (64 + 1028)}
    rows = compared(found.model_copy(update={"components": more}))
    assert cause(rows, "quantization_state").startswith(f"each of {layers} 4-bit layers")
    twice = {**found.components, "quantization_state": found.components["quantization_state"] + 40 * layers * (64 + 1028)}
    assert cause(compared(found.model_copy(update={"components": twice})), "quantization_state") == "no known cause"


def test_what_was_on_the_card_before_is_named(job: Job) -> None:
    found = record(job, context=430 * MiB + 2 * GiB)
    assert "before the pilot" not in cause(compared(found), "context")  # nothing in the record shows it
    known = found.model_copy(update={"nvml": {**found.nvml, "used_before_bytes": 2.0 * GiB}})
    assert cause(compared(known), "context") == "2.0 GiB were in use on the card before the pilot"


def test_the_allocator_is_named_only_where_what_is_allocated_was_as_planned(job: Job) -> None:
    assert "40 % beyond what is allocated" in cause(compared(record(job, slack=1.4)), "reserved")
    assert cause(compared(record(job, slack=1.4, scale=1.3)), "reserved") == "no known cause"
    options = {**ON_A_4090, "allocator_options": "expandable_segments:True"}
    assert cause(compared(record(job, slack=1.02, environment=options)), "slack").startswith("expandable segments")


def test_a_slow_step_is_explained_by_power_or_by_waiting_where_that_was_measured(job: Job) -> None:
    slow = 2 * float(step_time(job, RTX_4090).seconds)
    found = record(job, step_seconds=slow)
    assert cause(compared(found), "step") == "no known cause"
    for nvml, words in (
        ({"mean_watts": 449.0}, "power limit: 449 of 450 W"),
        ({"mean_utilisation": 0.5}, "busy 50 % of the time"),
    ):
        assert words in cause(compared(found.model_copy(update={"nvml": {**found.nvml, **nvml}})), "step")
    near = found.model_copy(update={"step_seconds": slow / 2 * 1.1})
    assert cause(compared(near), "step") == "within the band that the plan states"


# ---- chart -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "tr"])
def test_bars_are_the_rows_and_the_alt_text_is_the_verdict(job: Job, language: str) -> None:
    found = record(job, scale=1.2)
    rows = compared(found)
    sentence = note_text(verdict(found, rows), language)
    figure = components_chart(rows, sentence, language)
    json.dumps(figure.spec)
    assert figure.alt.endswith(sentence)
    closed, pilot = figure.spec["data"]
    assert [round(y * GiB / MiB) for y in pilot["y"]] == pytest.approx(
        [(row.measured or 0) / MiB for row in rows if row.name in COMPONENTS], abs=1
    )
    assert closed["marker"]["color"] != pilot["marker"]["color"]
    assert cause_texts(rows, language)


# ---- calibration -------------------------------------------------------------------------------------------------------


def test_what_was_measured_is_what_the_plan_then_says(job: Job) -> None:
    job = job.changed(micro_batch_size=4)
    seconds = 1.25 * float(step_time(job, RTX_4090).seconds)
    found = calibrated(record(job, slack=1.07, context=610 * MiB, step_seconds=seconds))
    peak = memory_breakdown(job, RTX_4090, found.memory).peak
    assert peak.reserved == pytest.approx(1.07 * peak.allocated, rel=1e-6)
    assert peak.device - peak.reserved == pytest.approx(610 * MiB, rel=1e-6)
    assert float(step_time(job, RTX_4090, assumptions=found.speed).seconds) == pytest.approx(seconds, rel=1e-6)
    for row in found.rows:
        assert row.after and row.after.calibrated and row.after.source == "pilot 2026-12-06 on RTX 4090"
        assert row.after.low <= row.after.value <= row.after.high
    table = calibration_table(found)
    assert "1.070 (1.040 – 1.320)" in table.rows[1] and "610 MiB (549 MiB – 671 MiB)" in table.rows[0]


def test_each_figure_is_used_only_where_it_holds(job: Job) -> None:
    job = job.changed(micro_batch_size=4)
    seconds = 1.25 * float(step_time(job, RTX_4090).seconds)
    found = calibrated(record(job, slack=1.07, context=610 * MiB, step_seconds=seconds))
    published = Assumptions()

    def peak_on(name: str, other: Job) -> Any:
        return memory_breakdown(other, find_gpu(name), found.memory).peak

    for name, measured in (("rtx-4090-24", True), ("l4", True), ("a100-sxm4-80", False), ("t4", False)):  # 8.9, 8.9, 8.0, 7.5
        peak = peak_on(name, job)
        assumed = published.context(find_gpu(name).compute_capability).value
        assert peak.device - peak.reserved == pytest.approx(610 * MiB if measured else assumed)
    assert peak_on("a100-sxm4-80", job).reserved == pytest.approx(1.07 * peak_on("a100-sxm4-80", job).allocated)
    lora = peak_on("rtx-4090-24", job.changed(method="lora", quantization="none"))
    assert lora.reserved == pytest.approx(published.allocator_slack.value * lora.allocated)
    eager = peak_on("rtx-4090-24", job.changed(attention="eager"))
    assert eager.reserved == pytest.approx(published.allocator_slack_with_scores.value * eager.allocated)
    assert step_time(job, A100, assumptions=found.speed) == step_time(job, A100)
    assert step_time(job, RTX_4090, assumptions=found.speed).seconds != step_time(job, RTX_4090).seconds


@pytest.mark.parametrize(
    ("fields", "row", "words"),
    [
        ({"context": 3 * GiB}, 0, "something else is in the figure"), ({"context": 10 * MiB}, 0, "something else is in the figure"),
        ({"nvml": {}}, 0, "NVML"), ({"slack": 2.5}, 1, "150 % beyond"), ({"steps": 3}, 2, "too few steps"),
        ({"step_seconds": 1e-3}, 2, "no share between"), ({"step_seconds": 1e3}, 2, "no share between"),
    ],
    ids=str,
)  # fmt: skip
def test_a_figure_outside_its_bounds_is_refused_with_a_sentence(job: Job, fields: dict[str, Any], row: int, words: str) -> None:
    found = calibrated(record(job.changed(micro_batch_size=4), **fields))
    assert found.rows[row].after is None and words in note_text(found.rows[row].note, "en")
    assert words in " ".join(calibration_table(found).rows[row])
    if row == 0:
        assert not found.memory.measured_context and found.memory.measured_slack


def test_a_step_that_is_mostly_launches_says_nothing_about_the_peak(job: Job) -> None:
    found = calibrated(record(job.changed(sequence_length=32)))
    assert found.rows[2].after is None and "larger batch" in note_text(found.rows[2].note, "en")
    assert found.speed == SpeedAssumptions()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"environment": {"device": "cpu"}}, "on the processor"), ({"state": "cancelled"}, "went through"),
        ({"environment": {**ON_A_4090, "gpu": "NVIDIA Nonesuch 9000"}}, "Nonesuch"),
    ],
    ids=str,
)  # fmt: skip
def test_a_run_that_cannot_calibrate_is_refused_whole(job: Job, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(PlannerError, match=words):
        calibrated(record(job, **fields))


def test_all_that_is_asked_of_a_plan_asks_with_the_same_assumptions(job: Job) -> None:
    memory = calibrated(record(job, slack=1.9, context=900 * MiB)).memory
    plan = make_plan(job, RTX_4090, memory)
    assert [note for note in note_texts(plan, "en") if "pilot 2026-12-06" in note] == [
        "CUDA context as measured: pilot 2026-12-06 on RTX 4090.", "Allocator slack as measured: pilot 2026-12-06 on RTX 4090.",
    ]  # fmt: skip
    best = largest_that_fits(job, RTX_4090, "micro_batch_size", assumptions=memory)
    assert best < largest_that_fits(job, RTX_4090, "micro_batch_size")
    assert make_plan(job.changed(micro_batch_size=best), RTX_4090, memory).fits
    fitting = {found.gpu.id for found in cards_that_fit(job, load_gpus().values(), memory)}
    assert fitting == {gpu.id for gpu in load_gpus().values() if make_plan(job, gpu, memory).fits}
    placement = Placements(Demand(job, assumptions=memory)).best(RTX_4090, 1, 1, None)
    assert placement.device_bytes == memory_breakdown(placement.job, RTX_4090, memory).peak.device  # type: ignore[union-attr]


# ---- where it is seen --------------------------------------------------------------------------------------------------


def test_the_card_shows_it_and_its_button_changes_the_plan_and_back(job: Job) -> None:
    used: list[Any] = []
    card = PilotComparison(used.append)
    assert card.layout.display == "none"
    card.show(record(job, slack=1.07, context=610 * MiB))
    assert "the plan holds" in card.result.value and "the plan holds" in card.chart.alt
    assert "quantisation scales" in card.table.value and "610 MiB" in card.assumptions.value
    assert card.use.layout.display is None
    card.use.click()
    assert used[-1].memory.measured_slack["qlora flash"].value == pytest.approx(1.07)
    card.translate("tr")
    assert card.use.description == "Yayımlanmış değerlere dön" and "plan tutuyor" in card.result.value
    card.use.click()
    assert used[-1] is None
    card.show(record(job, environment={"device": "cpu"}, phases={}, nvml={}))
    assert card.use.layout.display == "none" and not card.assumptions.value


def test_the_workbook_plans_with_it(job: Job) -> None:
    book = Workbook(allow_pilot=True)
    before = book.plan().memory.peak.device
    assert book.pilot
    book.pilot.comparison.show(record(book.job(), slack=1.3, context=610 * MiB))
    book.pilot.comparison.use.click()
    assert book.plan().memory.peak.device > before
    assert "as measured: pilot" in book.verdict.value
    book.pilot.comparison.use.click()
    assert book.plan().memory.peak.device == before and "as measured" not in book.verdict.value


def test_the_command_line_plans_with_a_record(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "measurement.json"
    write_measurement(path, record(job, slack=1.07, context=610 * MiB))
    arguments = ["estimate", "Llama-3.1-8B", "--method", "qlora", "--sequence-length", "1024", "--json"]
    plain, planned = (
        json.loads(CliRunner().invoke(planner, [*arguments, *more]).output) for more in ([], ["--pilot", str(path)])
    )
    assert planned["peak"]["device_bytes"] - planned["peak"]["reserved_bytes"] == pytest.approx(610 * MiB, abs=1)
    assert plain["peak"]["allocated_bytes"] == planned["peak"]["allocated_bytes"]
    write_measurement(path, record(job, environment={"device": "cpu"}))
    refused = CliRunner().invoke(planner, [*arguments, "--pilot", str(path)])
    assert refused.exit_code == 2 and "says nothing about a GPU" in refused.output


def test_offers_are_ranked_with_a_record(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "measurement.json"
    write_measurement(path, record(job, slack=1.07, context=610 * MiB))
    arguments = ["offers", "Llama-3.1-8B", "--method", "qlora", "--sequence-length", "1024", "--json"]
    plain, planned = (
        {row["source"] + row["instance_type"] + row["tier"]: row for row in json.loads(found.output)["offers"]}
        for found in (CliRunner().invoke(planner, [*arguments, *more]) for more in ([], ["--pilot", str(path)]))
    )
    moved = {row["gpu"] for key, row in planned.items() if row["device_bytes"] != plain[key]["device_bytes"]}
    assert RTX_4090.id in moved  # its context and slack
    (tmp_path / "none").write_text("{}")
    refused = CliRunner().invoke(planner, [*arguments, "--pilot", str(tmp_path / "none")])
    assert refused.exit_code == 2 and "is no record of a pilot" in refused.output


# ---- records that are kept ---------------------------------------------------------------------------------------------

WITHIN = 0.03


def replayed(folder: Path) -> dict[str, float]:
    """By record, how far today's closed form of the peak of allocated memory is from what was measured."""
    errors = {}
    for path in sorted(folder.glob("**/*.json")):
        found = read_measurement(path)
        memory = memory_breakdown(Job(**found.job), card_of(found))
        errors[str(path.relative_to(folder))] = float(memory.peak.allocated) / peak_bytes(found, "allocated") - 1
    return errors


def test_every_kept_record_is_still_predicted() -> None:
    assert {name: error for name, error in replayed(data_folder() / "pilots").items() if abs(error) > WITHIN} == {}


def test_a_replay_finds_a_prediction_that_has_moved(job: Job, tmp_path: Path) -> None:
    (tmp_path / "rtx-4090-24").mkdir()
    for name, scale in (("good", 1.02), ("moved", 1.05)):
        write_measurement(tmp_path / "rtx-4090-24" / f"{name}.json", record(job, scale=scale))
    errors = replayed(tmp_path)
    assert abs(errors["rtx-4090-24/good.json"]) < WITHIN < abs(errors["rtx-4090-24/moved.json"])
