"""The data files are whole: columns, units, keys, sources, and a README that explains each column."""

import csv
import json
import re
from collections import Counter
from typing import Any

import pytest

from planner.catalogues import CONFIG_COLUMNS, GPU_COLUMNS, MODEL_COLUMNS, data_folder
from planner.families import FAMILIES

FILES = {"models.csv": MODEL_COLUMNS, "gpus.csv": GPU_COLUMNS}


def rows(name: str) -> list[dict[str, str]]:
    with open(data_folder() / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


MODELS, GPUS = rows("models.csv"), rows("gpus.csv")


def test_there_are_at_least_100_models_and_60_cards() -> None:
    assert len(MODELS) >= 100
    assert len(GPUS) >= 60


@pytest.mark.parametrize("name", FILES)
def test_the_columns_are_those_that_the_reader_lists(name: str) -> None:
    assert tuple(rows(name)[0]) == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_the_readme_explains_every_column_once(name: str) -> None:
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    section = readme.split(f"## {name}", 1)[1].split("\n## ", 1)[0]
    explained = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert explained == list(FILES[name])


@pytest.mark.parametrize("name", FILES)
def test_every_row_has_a_source_and_a_date(name: str) -> None:
    for row in rows(name):
        assert len(row["source"]) > 5, row
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["retrieved"]), row


@pytest.mark.parametrize("name", FILES)
def test_cells_have_no_stray_space(name: str) -> None:
    assert [cell for row in rows(name) for cell in row.values() if cell != cell.strip()] == []


@pytest.mark.parametrize("name", FILES)
def test_no_name_is_used_twice(name: str) -> None:
    key, others = ("hf_id", "variants") if name == "models.csv" else ("id", "aliases")
    plain = (lambda text: text.lower()) if name == "models.csv" else (lambda text: re.sub("[^a-z0-9]", "", text.lower()))
    names = Counter(n for row in rows(name) for n in {plain(text) for text in (row[key], *row[others].split(";")) if text})
    assert [repeated for repeated, count in names.items() if count > 1] == []


def test_numbers_are_positive_and_unknown_is_blank() -> None:
    numeric = [c for c in GPU_COLUMNS if c.endswith(("_mib", "_per_s", "_tflops", "_tops", "_watts", "_year", "_generation"))]
    assert len(numeric) == 10
    assert [(row["id"], c) for row in GPUS for c in numeric if row[c] and float(row[c]) <= 0] == []
    sizes = [
        c
        for c in CONFIG_COLUMNS
        if c.endswith(("_size", "_heads", "_layers", "_dim", "_experts", "_rank", "_embeddings", "_tok"))
    ]
    sizes = [c for c in sizes if c != "tie_word_embeddings"]
    assert [(row["hf_id"], c) for row in MODELS for c in sizes if row[c] and int(row[c]) < (c == "shared")] == []
    assert all(int(row["published_params"]) > 10**7 for row in MODELS)


def test_models_are_of_a_family_that_the_closed_form_knows() -> None:
    assert {row["model_type"] for row in MODELS} <= set(FAMILIES)
    assert {row["gated"] for row in MODELS} <= {"yes", "no", ""}
    assert all(row["licence"] and row["published_params_source"] for row in MODELS)


def test_hub_ids_have_the_form_of_hub_ids() -> None:
    for row in MODELS:
        for name in (row["hf_id"], *filter(None, row["variants"].split(";"))):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", name), name


def test_other_config_adds_fields_and_repeats_no_column() -> None:
    for row in MODELS:
        other: dict[str, Any] = json.loads(row["other_config"] or "{}")
        assert not set(other) & set(CONFIG_COLUMNS), row["hf_id"]


def test_kernel_support_of_nvidia_cards_follows_from_the_compute_capability() -> None:
    """bf16 and FlashAttention-2 from 8.0, int8 tensor cores from 7.5, bitsandbytes 4-bit from 6.0."""
    least = {"supports_bf16": 8.0, "supports_flash_attention": 8.0, "supports_int8": 7.5, "supports_4bit": 6.0}
    for row in GPUS:
        if row["vendor"] != "NVIDIA":
            assert row["compute_capability"] == ""
            continue
        for column, capability in least.items():
            assert row[column] == ("yes" if float(row["compute_capability"]) >= capability else "no"), (row["id"], column)


def test_a_card_without_bf16_states_no_bf16_rate() -> None:
    assert [row["id"] for row in GPUS if row["supports_bf16"] == "no" and row["bf16_dense_tflops"]] == []


def test_every_class_of_card_is_there() -> None:
    assert Counter(row["segment"] for row in GPUS).keys() == {"consumer", "workstation", "datacenter"}
