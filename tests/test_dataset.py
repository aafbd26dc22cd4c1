"""Data sets: each format is read, each malformed row is named without its content, and lengths give worked shares."""

import csv
import hashlib
import json
import os
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from planner.catalogues import data_folder
from planner.cli import planner
from planner.dataset import LengthBin, Profile, dataset_texts, measure_dataset
from planner.dataset.profile import bin_end
from planner.dataset_views import dataset_table, length_histogram, malformed_table, profile_texts
from planner.delivery import DeliveryAssumptions
from planner.errors import InvalidJob, PlannerError
from planner.job import Job
from planner.workload import Workload

SECRET = "Zeynep-4711"
CHAT = {"messages": [{"role": "user", "content": "kaç?"}, {"role": "assistant", "content": [{"type": "text", "text": "beş"}]}]}
EXAMPLES: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": "kaç?", "completion": "beş"}, "prompt and completion", "kaç?\nbeş"),
    ({"question": "kaç?", "answer": "beş"}, "prompt and completion", "kaç?\nbeş"),
    ({"prompt": CHAT["messages"][:1], "completion": "beş"}, "prompt and completion", "kaç?\nbeş"),
    (CHAT, "messages", "kaç?\nbeş"),
    ({"conversations": [{"from": "human", "value": "kaç?"}, {"from": "gpt", "value": "beş"}]}, "messages", "kaç?\nbeş"),
    (
        {"messages": [*CHAT["messages"], {"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}]}, "messages", "kaç?\nbeş",
    ),
    ({"instruction": "say", "input": "kaç?", "output": "beş"}, "instruction, input and output", "say\nkaç?\nbeş"),
    ({"instruction": "say", "input": "", "output": "beş"}, "instruction, input and output", "say\nbeş"),
    ({"text": "düz", "label": 3}, "plain text", "düz"),
]  # fmt: skip
BAD_LINES: list[tuple[str, str]] = [
    (f'{{"text": "{SECRET}"', "it is no valid JSON, from column"),
    (f'{{"name": "{SECRET}"}}', "it has none of the fields messages,"),
    (f'{{"prompt": "{SECRET}"}}', "the field completion is missing"),
    ('{"text": null}', "the field text is missing"),
    ('{"text": "  "}', "the field text is empty"),
    ('{"text": 7}', "the field text is no text"),
    ('{"messages": []}', "the field messages is empty"),
    ('{"messages": [{"role": "user", "content": ""}]}', "the field messages is empty"),
    (f'{{"messages": [{{"role": "{SECRET}"}}]}}', "a message in messages has no content"),
    ('"a"', "it is no object with named fields"),
    ('{"text": "\\ud800"}', "it has half of a surrogate pair"),
    ('{"text": ' + "[" * 100_000, "it is JSON that cannot be read"),
    ('{"text": ' + "9" * 5000 + "}", "it is JSON that cannot be read"),
]


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def profile(*bins: tuple[int, int], **values: Any) -> Profile:
    """So many rows of each length."""
    histogram = tuple(LengthBin(length, rows, length * rows) for length, rows in bins)
    rows, tokens = sum(each.rows for each in histogram), sum(each.tokens for each in histogram)
    return Profile(
        name="x", sha256="0", file_bytes=4 * tokens, file_format="jsonl", formats={}, rows=rows, malformed_rows=0, tokens=tokens,
        longest_tokens=max(each.longest for each in histogram), histogram=histogram, seconds=1, **values,
    )  # fmt: skip


# ---- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "kind", "text"), EXAMPLES, ids=str)
def test_each_format_of_example_is_recognised(row: dict[str, Any], kind: str, text: str, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [row])
    assert list(dataset_texts(path)) == [text]
    found = measure_dataset(path)
    assert (found.formats, found.rows, found.malformed_rows) == ({kind: 1}, 1, 0)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=[reason for _, reason in BAD_LINES])
def test_a_malformed_row_is_counted_and_never_quoted(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "good"}\n\n' + line + '\n{"text": "good"}\n', encoding="utf-8")
    found = measure_dataset(path)
    assert (found.rows, found.malformed_rows) == (2, 1)
    assert found.malformed[0].row == 3 and reason in found.malformed[0].text("en")
    assert SECRET not in found.model_dump_json()


def test_the_same_rows_come_from_every_kind_of_file(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"prompt": f'kaç {n}?\n\nve; "neden", peki', "completion": "beş " * n} for n in range(1, 700)]
    jsonl(tmp_path / "a.jsonl", rows)
    for name, delimiter in (("a.csv", ";"), ("a.tsv", "\t")):
        with open(tmp_path / name, "w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, ["prompt", "completion"], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    table = pa.Table.from_pylist([{**row, "other": 1} for row in rows])
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=100)
    expected = [f"{row['prompt']}\n{row['completion']}" for row in rows]
    seen: list[tuple[int, int, int]] = []
    for name in ("a.jsonl", "a.csv", "a.tsv", "a.parquet", "a.arrow"):
        path = tmp_path / name
        assert list(dataset_texts(path)) == expected, name
        found = measure_dataset(path, progress=lambda *values: seen.append(values))
        assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert (found.rows, found.malformed_rows, found.tokens) == (699, 0, measure_dataset(tmp_path / "a.jsonl").tokens)
    assert seen and all(0 < done <= total for done, total, _ in seen)


def test_messages_in_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    chat = {"messages": [{"role": "user", "content": "kaç?"}, {"role": "assistant", "content": "beş"}]}
    parquet.write_table(pa.Table.from_pylist([chat, {"messages": None}]), tmp_path / "train.parquet")
    found = measure_dataset(tmp_path)
    assert (found.formats, found.malformed[0].text("en")) == ({"messages": 1}, "the field messages is missing")


def test_of_a_folder_the_training_split_is_read(tmp_path: Path) -> None:
    for name, count in (("train-00000-of-00002", 3), ("train-00001-of-00002", 2), ("test-00000-of-00001", 9)):
        jsonl(tmp_path / f"{name}.jsonl", [{"text": name}] * count)
    (tmp_path / "README.txt").write_text("not a row\n")
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "train-00002.jsonl").symlink_to(tmp_path / "train-00002.jsonl")
    os.mkfifo(tmp_path / "train-00003.jsonl")
    found = measure_dataset(tmp_path)
    assert (found.rows, found.files, found.name) == (5, 2, tmp_path.name)
    lines = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(tmp_path.glob("train*-of-*"))
    )
    assert found.sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_csv_goes_on_behind_a_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'text,label\ngood,1\n"two\n\nlines",2\nshort\nlong,1,2\nlat\xfdn,1\n\nlast,3\n')
    found = measure_dataset(path)
    assert (found.rows, found.malformed_rows) == (3, 3)
    assert [(each.row, each.reason) for each in found.malformed] == [
        (6, "it has fewer cells than the header"), (7, "it has more cells than the header"), (8, "it is not UTF-8"),
    ]  # fmt: skip
    assert list(dataset_texts(path))[1] == "two\n\nlines"
    path.write_text('text\ngood\n"never closed\n' + "x\n" * 500 + "good\n")
    found = measure_dataset(path, row_limit_bytes=100)
    assert found.malformed[0].reason == "a quote is not closed" and found.rows > 400


def test_text_has_a_row_on_each_line_and_mixed_encodings_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes("\ufeffilk satır\r\n\r\n".encode() + "kötü ğ\n".encode("cp1254") + b"last")
    assert list(dataset_texts(path)) == ["ilk satır", "last"]
    assert measure_dataset(path).malformed[0].text("tr") == "UTF-8 değil"


def test_an_endless_line_is_passed_over_and_never_held(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with open(path, "wb") as file:
        file.write(b'{"text": "')
        for _ in range(64):
            file.write(b"a" * 2**20)
        file.write(b'"}\n{"text": "good"}\n')
    tracemalloc.start()
    found = measure_dataset(path, row_limit_bytes=2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.rows, found.malformed[0].text("en")) == (1, "it is longer than 1 MiB")
    assert peak < 8 * 2**20
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("rows.jsonl", b"", "is empty"),
        ("rows.json", b' [\n{"text": "a"}]', "is one JSON array"),
        ("rows.jsonl", b"\x1f\x8b\x08", "is compressed"),
        ("rows.csv", "text\na\n".encode("utf-16"), "is UTF-16"),
        ("rows.bin", b"MZ\0\0", "is no text"),
        ("rows.csv", b"name,age\na,1\n", "of no known format"),
        ("rows.csv", b"t\xfdxt\na\n", "the header of"),
        ("rows.csv", b"text,label\rgood,1\r", "the header of"),
        ("rows.parquet", b"PAR1 no more", "cannot be read as Parquet"),
        ("rows.arrow", b"ARROW1 no more", "cannot be read as Arrow"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PlannerError, match=sentence) as found:
        measure_dataset(tmp_path / name)
    assert "\n" not in str(found.value)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, sentence in (
        ("none", "cannot be read .No such file"), ("loop", "cannot be read .Too many levels"), ("empty", "holds no JSONL"),
        ("pipe", "neither a file nor a folder"), ("a\0b", "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(PlannerError, match=sentence):
            measure_dataset(tmp_path / name)


def test_a_file_that_changes_meanwhile_is_said(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [{"text": "x" * 1000}] * 3000)

    def write(*_: int) -> None:
        with open(path, "a") as file:
            file.write("\n")

    with pytest.raises(PlannerError, match="changed while it was read"):
        measure_dataset(path, progress=write)


def test_measuring_can_be_cancelled(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [{"text": "x" * 1000}] * 3000)
    with pytest.raises(PlannerError, match="was cancelled"):
        measure_dataset(path, cancelled=lambda: True)


@pytest.mark.parametrize(("language", "kind"), [("en", "prompt and completion"), ("tr", "messages")])
def test_the_samples_are_whole(language: str, kind: str) -> None:
    found = measure_dataset(data_folder() / "samples" / f"gpu_rental_{language}.jsonl")
    assert (found.malformed_rows, list(found.formats)) == (0, [kind])
    assert 30 <= found.rows <= 60 and found.file_bytes < 20_000


# ---- tokens -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A word is a token, between two of its own; saved with a truncation that must not count."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"[UNK]": 0, "<s>": 1, "</s>": 2}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    made.enable_truncation(4)
    made.enable_padding(length=9)
    (tmp_path / "toy-model").mkdir()
    made.save(str(tmp_path / "toy-model" / "tokenizer.json"))
    return tmp_path / "toy-model"


def test_a_models_own_tokenizer_counts(tokenizer: Path, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [{"text": "bir"}, {"text": "bir iki üç dört beş"}, {"text": "bir iki"}])
    for model in (tokenizer, tokenizer / "tokenizer.json"):
        found = measure_dataset(path, str(model))
        assert (found.tokens, found.longest_tokens, found.model, found.estimated) == (3 + 7 + 4, 7, "toy-model", "")
        assert [(each.longest, each.rows) for each in found.histogram] == [(3, 1), (4, 1), (7, 1)]
    assert found.tokens_per_s and found.tokens_per_s > 0
    stages = found.delivery_assumptions(DeliveryAssumptions())
    assert stages.tokenising.value == found.tokens_per_s and stages.tokenising.calibrated
    assert stages.upload == DeliveryAssumptions().upload


def test_without_a_tokenizer_the_estimate_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    path = jsonl(tmp_path / "rows.jsonl", [{"text": "a" * 400}, {"text": "ğ" * 400}])
    found = measure_dataset(path)
    assert (found.tokens, found.estimated) == (100 + 200, "no model is named")
    assert found.bytes_per_token and found.bytes_per_token.source
    named = measure_dataset(path, "Llama-3.1-8B")
    assert (named.model, named.tokens) == ("meta-llama/Llama-3.1-8B", 300)
    assert "the Hub is not asked" in named.estimated
    assert named.delivery_assumptions() == DeliveryAssumptions()


def test_a_model_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [{"text": "a"}])
    (tmp_path / "bad.json").write_text("{}")
    for model, sentence in (
        ("./none", "there is no tokenizer.json at './none'"), (str(tmp_path), "there is no tokenizer.json"),
        (str(tmp_path / "bad.json"), "is no tokenizer"), ("Lama-3.1-8B", "did you mean"),
    ):  # fmt: skip
        with pytest.raises(PlannerError, match=sentence):
            measure_dataset(path, model)


# ---- arithmetic -------------------------------------------------------------------------------------------------------


def test_worked_shares() -> None:
    data = profile((100, 6), (500, 3), (3000, 1))  # 5,100 tokens
    assert (data.tokens, data.tokens_per_row) == (5100, 510)
    assert data.truncated_rows_share(256) == pytest.approx(0.4)
    assert data.truncated_tokens_share(256) == pytest.approx((3 * 244 + 2744) / 5100)
    assert data.padding_share(256) == pytest.approx(1 - (600 + 4 * 256) / 2560)
    assert data.padding_share(4096, 1) == pytest.approx(0, abs=1e-12)
    assert data.padding_share(4096, 2) == pytest.approx(1 - 510 / (0.36 * 100 + (0.81 - 0.36) * 500 + 0.19 * 3000))
    assert data.packed_rows(1024) == pytest.approx(5100 / 1024)
    assert data.packing_gain(1024) == pytest.approx(10 * 1024 / 5100)
    assert data.steps_per_epoch(1024, 4, packing=False) == 3
    assert data.steps_per_epoch(1024, 4, packing=True) == 2
    assert [data.quantile(share) for share in (0.5, 0.6, 0.9, 0.99)] == [100, 100, 500, 3000]


def test_arrays_of_lengths_give_what_scalars_give() -> None:
    data, lengths = profile((100, 6), (500, 3), (3000, 1)), np.array([64, 256, 1024, 4096])
    for formula in (
        data.truncated_rows_share,
        data.truncated_tokens_share,
        data.padding_share,
        data.packed_rows,
        data.packing_gain,
    ):
        np.testing.assert_allclose(formula(lengths), [formula(int(length)) for length in lengths])
    np.testing.assert_allclose(data.padding_share(lengths, 8), [data.padding_share(int(length), 8) for length in lengths])
    np.testing.assert_allclose(data.padding_share(1024, np.array([1, 4])), [data.padding_share(1024, B) for B in (1, 4)])
    assert list(data.steps_per_epoch(lengths, 2, packing=True)) == [40, 10, 3, 1]


def test_padding_to_the_longest_is_what_batches_at_random_have() -> None:
    data = profile((100, 60), (500, 30), (3000, 10))
    drawn = np.random.default_rng(0).choice([100, 500, 2048], p=[0.6, 0.3, 0.1], size=(200_000, 4))
    assert data.padding_share(2048, 4) == pytest.approx(1 - drawn.sum() / (4 * drawn.max(axis=1).sum()), abs=0.005)


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=50), st.sampled_from([128, 1024, 3072, 6144, 24576, 131072]))
def test_binned_lengths_are_exact_at_the_sliders_values(lengths: list[int], S: int) -> None:
    bins: dict[int, list[int]] = {}
    for length in lengths:
        bins.setdefault(bin_end(length), []).append(length)
    histogram = tuple(LengthBin(end, len(found), sum(found)) for end, found in sorted(bins.items()))
    data = profile((1, 1)).model_copy(update={"rows": len(lengths), "tokens": sum(lengths), "histogram": histogram})
    assert data.truncated_rows_share(S) == pytest.approx(sum(length > S for length in lengths) / len(lengths))
    assert data.truncated_tokens_share(S) == pytest.approx(sum(max(0, length - S) for length in lengths) / sum(lengths))
    bars = data.bars(S)
    assert sum(bar.cut for bar in bars) == sum(length > S for length in lengths)
    assert sum(bar.whole + bar.cut for bar in bars) == len(lengths)
    assert all(first.to <= second.above * (1 + 1e-9) for first, second in pairwise(bars))


def test_the_histogram_is_bounded_and_its_bins_are_narrow() -> None:
    ends = {
        bin_end(length)
        for length in (*range(1, 5000), *(2**n + m for n in range(12, 27) for m in range(0, 2**n, max(1, 2**n // 999))))
    }
    assert len(ends) < 1600
    assert all(length <= bin_end(length) < 1.016 * length + 1 for length in range(1, 100_000, 7))


def test_a_profile_says_what_there_is_to_do(llama_3_8b: Any) -> None:
    data = profile((100, 60), (500, 30), (3000, 10))
    base = Workload(epochs=2, global_batch_size=8)
    work = data.workload(base)
    assert (work.examples, work.tokens_per_example, work.epochs) == (100, 510, 2)
    job = Job(architecture=llama_3_8b, sequence_length=1024)
    assert work.rows(job) == pytest.approx(2 * data.packed_rows(1024))
    assert data.storage_policy().dataset_bytes == data.file_bytes
    assert Profile(**json.loads(data.model_dump_json())) == data
    with pytest.raises(InvalidJob, match="examples is 0"):
        data.model_copy(update={"rows": 0, "tokens": 0}).workload()


# ---- shown ------------------------------------------------------------------------------------------------------------


def test_bars_beyond_the_sequence_length_have_another_colour_and_the_alternative_says_it() -> None:
    data = profile((100, 6), (500, 3), (3000, 1))
    figure = length_histogram(data, 1024)
    whole, cut = figure.spec["data"]
    assert (sum(whole["y"]), sum(cut["y"])) == (9, 1)
    assert whole["marker"]["color"] != cut["marker"]["color"] and cut["marker"]["pattern"]["shape"]
    assert figure.spec["layout"]["shapes"][0]["x0"] == 1024
    assert "the longest 3,000; 10.0 % are longer than 1,024" in figure.alt
    assert "%10,0" in length_histogram(data, 1024, "tr").alt
    assert figure.plotly().data[0].y[0] == 6


def test_sentences_and_tables_in_both_languages() -> None:
    data = profile((100, 6), (500, 3), (3000, 1), model="org/toy", tokens_per_s=750_000.0)
    english, turkish = (" ".join(profile_texts(data, 1024, language)) for language in ("en", "tr"))
    assert "10 usable rows" in english and "750,000 tokens a second" in english and "10.0 % of the rows are cut" in english
    assert "10 kullanılabilir satır" in turkish and "%10,0" in turkish
    cells = dict(dataset_table(data, 1024, 2, 4).rows)
    assert (cells["rows cut at the sequence length"], cells["optimizer steps an epoch, packed"]) == ("10.0 %", "2")
    assert malformed_table(data).rows == ()


def test_the_command_measures_and_says_by_its_status_what_came_of_it(tmp_path: Path) -> None:
    good, bad = (
        jsonl(tmp_path / "good.jsonl", [{"text": "a" * 4000}, {"x": SECRET}]),
        jsonl(tmp_path / "bad.jsonl", [{"x": SECRET}]),
    )
    shown = CliRunner().invoke(planner, ["dataset", str(good), "--sequence-length", "500"])
    assert (shown.exit_code, SECRET in shown.output) == (0, False)
    assert "Malformed rows, left out: 1" in shown.output and "100.0 % of the rows are cut" in shown.output
    found = json.loads(CliRunner().invoke(planner, ["dataset", str(good), "--sequence-length", "500", "--json"]).stdout)
    assert (found["tokens"], found["at"]["truncated_tokens_share"]) == (1000, 0.5)
    empty = CliRunner().invoke(planner, ["dataset", str(bad), "--language", "tr"])
    assert empty.exit_code == 1 and "şu alanlardan hiçbiri yok" in empty.output
    wrong = CliRunner().invoke(planner, ["dataset", str(tmp_path / "none")])
    assert wrong.exit_code == 2 and "cannot be read" in wrong.stderr and "Traceback" not in wrong.output
