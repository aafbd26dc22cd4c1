"""The data files are whole: columns, units, keys, sources, and a README that explains each column."""

import csv
import json
import re
from collections import Counter
from typing import Any

import pytest

from planner.catalogues import (
    CONFIG_COLUMNS,
    GPU_COLUMNS,
    MODEL_COLUMNS,
    OFFER_COLUMNS,
    PROVIDER_COLUMNS,
    data_folder,
    load_gpus,
    load_offers,
    load_providers,
)
from planner.families import FAMILIES

FILES = {
    "models.csv": MODEL_COLUMNS, "gpus.csv": GPU_COLUMNS, "offers.csv": OFFER_COLUMNS, "providers.csv": PROVIDER_COLUMNS,
}  # fmt: skip


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
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["price_date" if name == "offers.csv" else "retrieved"]), row


@pytest.mark.parametrize("name", FILES)
def test_cells_have_no_stray_space(name: str) -> None:
    assert [cell for row in rows(name) for cell in row.values() if cell != cell.strip()] == []


@pytest.mark.parametrize("name", ["models.csv", "gpus.csv"])
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


def test_there_are_hundreds_of_offers_of_a_dozen_providers() -> None:
    assert len(load_offers()) == 342
    assert len(load_providers()) == 20
    with_offers = {offer.provider_id for offer in load_offers()}
    assert load_providers().keys() - with_offers == {"scaleway", "seeweb", "thundercompute"}


def test_prices_of_a_card_are_within_what_was_seen_in_2026() -> None:
    """From 0.09 USD per hour (old V100 of a marketplace, by spot) to 27 USD (GB200 of a hyperscaler)."""
    for offer in load_offers():
        for price in (offer.usd_per_hour_median, offer.usd_per_hour, offer.spot_usd_per_hour, offer.spot_usd_per_hour_median):
            assert price is None or 0.09 < price / offer.gpu_count < 35, offer


def test_offers_without_a_card_are_those_that_the_readme_names() -> None:
    assert {offer.gpu_name for offer in load_offers() if offer.gpu_id is None} == {"T4G", "Gaudi HL-205", "H100"}


def test_a_published_name_agrees_with_the_card_that_it_was_taken_for() -> None:
    """The number in the name is in the card's name: an L40S is no L40, a 4090 no 3090."""
    for offer in load_offers():
        if offer.gpu_id:
            for word in re.findall(r"[A-Z]*\d{2,4}[A-Z]*\b", offer.gpu_name.upper().replace("NVL72", "")):
                assert word.lower() in re.sub(r"[ -]", "", load_gpus()[offer.gpu_id].name + offer.gpu_id).lower(), offer


def test_dates_of_prices_are_estimates_exactly_where_the_note_says_undated() -> None:
    for offer in load_offers():
        assert offer.price_date and "2025-01-01" <= offer.price_date.isoformat() <= "2026-12-01", offer
        assert offer.price_date_estimated == ("undated" in offer.price_date_note), offer


def test_the_three_cards_that_are_always_compared_have_offers() -> None:
    assert {"rtx-4090-24", "a100-sxm4-80", "h100-sxm5-80"} <= {offer.gpu_id for offer in load_offers()}


def test_unknown_terms_stay_unknown_and_free_egress_is_stated() -> None:
    providers = load_providers()
    assert {name for name, one in providers.items() if one.egress_usd_per_gb == 0} == {
        "runpod", "lambda", "coreweave", "nebius", "thundercompute",
    }  # fmt: skip
    assert (providers["vast"].egress_usd_per_gb, providers["aws"].billing, providers["akash"].has_spot) == (None, None, None)
    assert (providers["aws"].egress_usd_per_gb, providers["aws"].egress_free_gb_per_month) == (0.09, 100)
    assert {name for name, one in providers.items() if one.billing == "second"} == {"runpod", "vast", "verda"}
    assert {name for name, one in providers.items() if one.spot_notice_s} == {"aws", "azure", "gcp"}


def test_speeds_between_machines_are_those_of_the_source() -> None:
    """Google: A3 High 1 Tb/s and Mega 1.8 Tb/s per 8 cards. Azure: 400 Gb/s per card on ND H100."""
    fabric = {one.instance_type: one.fabric_bytes_per_s_per_gpu for one in load_offers() if one.fabric_bytes_per_s_per_gpu}
    assert fabric == {
        "a3-highgpu-8g": 1e12 / 8 / 8, "a3-megagpu-8g": 1.8e12 / 8 / 8, "Standard_ND96isr_H100_v5": 400e9 / 8,
    }  # fmt: skip
