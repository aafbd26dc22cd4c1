"""Published runs as jobs, what the command says of them, and that what README.md shows is what the data gives."""

import csv
import json
from pathlib import Path

import pytest
from accuracy_table import in_readme, table
from click.testing import CliRunner

from planner.catalogues import data_folder
from planner.cli import planner
from planner.memory import Assumptions, memory_breakdown
from planner.validation.intervals import Ratio, band, coverage_left_out
from planner.validation.left_out import left_out
from planner.validation.published import Published, Skipped, published_run
from planner.validation.report import Judged, judged, summary
from planner.validation.shipped import MEASUREMENT_COLUMNS, cleaned
from planner.validation_views import group_table, worst_table

TABLE = data_folder() / "measurements.csv"
with TABLE.open(encoding="utf-8", newline="") as opened:
    ROWS = list(csv.DictReader(opened))
ROW = {
    "id": "mine", "quantity": "allocated", "peak_mib": "15615.3", "model": "mistralai/Mistral-7B-v0.1", "method": "lora", "base_quantization": "nf4",
    "lora_rank": "16", "lora_targets": "q,k,v,o", "precision": "bf16_mixed", "sequence_length": "4096", "micro_batch_size": "4",
    "gpu": "A100-80GB", "framework": "transformers 4.48.1, peft 0.13.2", "notes": "custom k-bit preparation without the fp32 cast",
}  # fmt: skip


def run_of(**cells: str) -> Published:
    found = published_run(ROW | cells)
    assert isinstance(found, Published), found
    return found


@pytest.mark.parametrize(
    ("version", "kind", "bytes_per_logit"),
    [("4.39.3", "4.31", 12), ("4.45.2", "4.41", 12), ("4.48.1", "4.46", 14), ("5.2.0", "5", 12)],
)
def test_the_version_of_transformers_says_what_the_logits_cost(version: str, kind: str, bytes_per_logit: int) -> None:
    job = run_of(framework=f"transformers {version}").job
    assert job.transformers == kind
    lines = [line for line in memory_breakdown(job).lines if line.name == "logits and loss"]
    logits = 4 * 4096 * 32_000
    assert max(line.bytes for line in lines) == pytest.approx(bytes_per_logit * logits, rel=0.03)  # and 2 T D in 4.46


def test_a_published_run_on_transformers_4_is_met_within_half_a_percent() -> None:
    run = run_of()
    assert memory_breakdown(run.job, run.gpu).peak.allocated == pytest.approx(run.measured_bytes, rel=0.005)


def test_trl_leaves_only_norms_in_fp32_and_adapters_in_16_bit() -> None:
    resident = {}
    for framework in ("trl 0.13.0, transformers 4.48.1", "transformers 4.48.1"):
        memory = memory_breakdown(run_of(framework=framework, notes="").job)
        resident[framework[:3]] = {line.name: line.bytes for line in memory.lines if line.instant == "resident"}
    for name in ("embeddings and head", "adapter parameters", "optimizer states"):
        assert resident["tra"][name] == 2 * resident["trl"][name]


def test_gptq_weights_are_half_a_byte_with_a_scale_and_a_zero_per_128() -> None:
    linears = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336)
    job = run_of(model="TheBloke/Mistral-7B-v0.1-GPTQ", base_quantization="gptq4").job
    lines = {line.name: line.bytes for line in memory_breakdown(job).lines if line.instant == "resident"}
    assert lines["quantised weights"] == linears / 2 and lines["quantisation scales"] == linears / 128 * 2.5


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"model": "nobody/unknown-9b", "params_b": "9"}, "no model named"),
        ({"peak_mib": "much"}, "a number cannot be read"),
        ({"peak_mib": ""}, "peak_mib is not stated"),
        ({"sequence_length": "0"}, "must be a whole number"),
        ({"quantity": "guess"}, "quantity is guess"),
        ({"method": "galore"}, "method galore"),
        ({"num_gpus": "4", "sharding": "none"}, "layers placed on them one after another"),
        ({"sequence_length": "1e400"}, "a number cannot be read"),
        ({"lora_rank": "nan"}, "a number cannot be read"),
    ],
)
def test_a_row_that_no_job_says_is_skipped_with_its_reason(cells: dict[str, str], reason: str) -> None:
    found = published_run(ROW | cells)
    assert isinstance(found, Skipped) and reason in found.reason


def test_the_shipped_table_is_whole() -> None:
    assert tuple(ROWS[0]) == MEASUREMENT_COLUMNS
    assert len(ROWS) == 577 and all(row["source"] and row["ref"] and row["date"] for row in ROWS)
    skipped = [row for row in map(published_run, ROWS) if isinstance(row, Skipped)]
    assert len(skipped) <= 20


def test_a_row_said_in_columns_is_the_same_job_again() -> None:
    assert [cleaned(row) for row in ROWS] == ROWS


def test_the_accuracy_that_is_published() -> None:
    found = [row for row in judged(map(published_run, ROWS)) if not isinstance(row, Skipped)]
    total = summary(found)
    assert total["all"]["median_ape"] <= 0.04 and total["all"]["p90_ape"] <= 0.17
    assert total["allocated"]["median_ape"] <= 0.015
    assert total["false_fits"] == 0 and total["oom_rows"] >= 10
    assert total["false_no_fits"] <= 0.01 * total["fit_rows"]


def test_readme_shows_what_the_data_gives() -> None:
    assert in_readme() == table(), "run python tests/accuracy_table.py --write"


def test_nine_of_ten_rows_of_left_out_publishers_lie_in_the_band() -> None:
    rows = left_out()
    assert 0.85 <= sum(held for _, _, held in rows) / len(rows) <= 0.95


def test_each_of_the_twenty_worst_rows_has_its_mechanism() -> None:
    with (data_folder() / "worst_rows.csv").open(encoding="utf-8") as file:
        known = list(csv.DictReader(file))
    worst = sorted(left_out(), key=lambda found: -abs(found[1] / found[0].run.measured_bytes - 1))[:20]
    assert {row["id"] for row in known} == {found.run.id for found, _, _ in worst}, "look at the new ones, and say why"
    assert all(row["mechanism"] and (row["evidence"] or row["mechanism"] == "unexplained") for row in known)
    assert [row[0] for row in worst_table().rows] == [found.run.id for found, _, _ in worst]


def test_errors_have_no_sign_and_bias_has_one() -> None:
    found = [row for row in judged(map(published_run, ROWS)) if isinstance(row, Judged)]
    for _, _, median, p90, bias, covered in group_table(found, "method").rows:
        assert not any(text.startswith(("+", "-")) for text in (median, p90, covered))
        assert bias == "0.0 %" or bias[0] in "+-"
    html = group_table(found, "method")._repr_html_()
    assert html.count("text-align:left") == html.count("<tr>")  # names; figures stand to the right


def test_the_stored_bands_are_those_of_the_data() -> None:
    ratios: dict[bool, list[Ratio]] = {True: [], False: []}
    from planner.validation.intervals import publisher

    for row in judged(map(published_run, ROWS)):
        if not isinstance(row, Skipped) and row.run.quantity != "oom_above":
            regime = "several" if row.run.sharding else "one"
            ratios[row.run.quantity == "allocated"].append(
                Ratio(regime, publisher(row.run.source), row.run.measured_bytes / row.predicted)
            )
    stored = Assumptions()
    for allocated, one, several in (
        (True, stored.allocated_one_gpu, stored.allocated_several_gpus), (False, stored.need_one_gpu, stored.need_several_gpus),
    ):  # fmt: skip
        for regime, row in (("one", one), ("several", several)):
            assert band(ratios[allocated], regime) == pytest.approx((row.low, row.high), abs=0.002)


def test_a_band_of_equal_sources_covers_the_one_left_out() -> None:
    rows = [Ratio("one", source, 1 + number / 100) for source in "abcd" for number in range(-10, 11)]
    ((inside, count),) = coverage_left_out(rows).values()
    assert count == 84 and 0.85 <= inside / count <= 0.97


def test_the_command_gives_one_document_and_no_row_stops_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*ROW, "extra"])
        writer.writeheader()
        writer.writerows([ROW | {"extra": "x"}, ROW | {"id": "broken", "peak_mib": "-1"}])
        writer.writerow(ROW | {"id": "full", "quantity": "oom_above", "peak_mib": "8000"})
        file.write('only,three,"cells"\n')
    answer = CliRunner().invoke(planner, ["validate", str(path), "--json"])
    assert answer.exit_code == 0
    document = json.loads(answer.stdout)
    assert [row["id"] for row in document["rows"]] == ["mine", "full"]
    assert {row["id"] for row in document["skipped"]} == {"broken", "only"}
    total = document["summary"]
    assert (total["allocated"]["n"], total["oom_rows"], total["false_fits"]) == (1, 1, 0)
    assert set(total["tokens_per_second"]) == {"n", "median_ape", "p90_ape", "bias"}


def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    for name in (str(path), str(tmp_path / "missing.csv")):
        answer = CliRunner().invoke(planner, ["validate", name])
        assert answer.exit_code == 2 and answer.stderr.count("\n") == 1
