"""data/*.csv -> records: strict rows, units converted once, names found as people write them."""

import csv
import io
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalogues
from planner.architecture import Architecture
from planner.catalogues import (
    GPU_COLUMNS,
    MODEL_COLUMNS,
    OFFER_COLUMNS,
    PROVIDER_COLUMNS,
    find_gpu,
    find_model,
    known_models,
    load_gpus,
    load_models,
    load_offers,
    read_gpus,
    read_models,
    read_offers,
    read_providers,
)
from planner.catalogues.offers import offers_csv
from planner.errors import AmbiguousName, BadRow, UnknownName
from planner.hardware import USABLE_SHARE
from planner.units import GiB, MiB

GPU_ROW = {
    "id": "test-24", "name": "GeForce Test", "aliases": "Test;T-24", "vendor": "NVIDIA", "segment": "consumer",
    "architecture": "Ada Lovelace", "compute_capability": "8.9", "memory_mib": "24576", "memory_basis": "nominal",
    "memory_type": "GDDR6X", "memory_bandwidth_gb_per_s": "1010", "bf16_dense_tflops": "165.2", "supports_bf16": "yes",
    "source": "a test", "retrieved": "2026-12-01",
}  # fmt: skip
MODEL_ROW = {
    "hf_id": "org/tiny", "model_type": "llama", "hidden_size": "64", "num_hidden_layers": "2", "num_attention_heads": "4",
    "vocab_size": "128", "intermediate_size": "96", "tie_word_embeddings": "true", "published_params": "1", "source": "a test",
    "published_params_source": "a test", "licence": "MIT", "retrieved": "2026-12-01",
}  # fmt: skip


def as_file(columns: tuple[str, ...], *rows: dict[str, str]) -> io.StringIO:
    file = io.StringIO()
    file.name = "test.csv"
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    file.seek(0)
    return file


def test_units_are_converted_once_and_a_blank_is_none() -> None:
    (gpu,) = read_gpus(as_file(GPU_COLUMNS, GPU_ROW))
    assert gpu.memory_bytes == 24_576 * MiB == 24 * GiB
    assert gpu.memory_bandwidth_bytes_per_s == 1010e9
    assert gpu.peak_bf16_flops_per_s == 165.2e12
    assert (gpu.compute_capability, gpu.aliases, gpu.label) == ((8, 9), ("Test", "T-24"), "Test")
    assert (gpu.peak_fp8_flops_per_s, gpu.supports_int8, gpu.tdp_watts, gpu.release_year) == (None, None, None, None)


def test_a_nominal_size_is_not_all_usable() -> None:
    (gpu,) = read_gpus(as_file(GPU_COLUMNS, GPU_ROW))
    assert gpu.usable_memory_bytes == int(24 * GiB * 0.96)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("memory_mib", "24 GB"), ("memory_mib", ""), ("memory_mib", "-1"), ("memory_mib", "0"),
        ("memory_bandwidth_gb_per_s", "0"), ("bf16_dense_tflops", "fast"), ("bf16_dense_tflops", "nan"),
        ("supports_bf16", "true"), ("compute_capability", "8"), ("segment", "gaming"), ("memory_basis", "guess"),
        ("vendor", ""), ("source", ""), ("tdp_watts", "inf"), ("retrieved", "yesterday"), ("id", "Not An Id"),
        ("release_year", "20222"),
    ],
)  # fmt: skip
def test_a_bad_cell_of_a_card_is_named_with_its_file_and_line(column: str, cell: str) -> None:
    with pytest.raises(BadRow, match=r"test\.csv, line 3") as caught:
        list(read_gpus(as_file(GPU_COLUMNS, {**GPU_ROW, "id": "fine"}, {**GPU_ROW, column: cell})))
    assert repr(column) in str(caught.value)
    assert cell in str(caught.value)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("hidden_size", "wide"), ("hidden_size", ""), ("hidden_size", "-64"), ("num_key_value_heads", "3"),
        ("model_type", "mamba"), ("tie_word_embeddings", "True"), ("other_config", "{"), ("other_config", "[1]"),
        ("published_params", ""), ("published_params", "0"), ("gated", "maybe"), ("source", ""), ("hf_id", ""),
        ("licence", ""),
    ],
)  # fmt: skip
def test_a_bad_cell_of_a_model_is_named_with_its_file_and_line(column: str, cell: str) -> None:
    with pytest.raises(BadRow, match=r"test\.csv, line 2") as caught:
        list(read_models(as_file(MODEL_COLUMNS, {**MODEL_ROW, column: cell})))
    assert repr(column) in str(caught.value)
    assert cell in str(caught.value)


def test_missing_and_unknown_columns_are_named() -> None:
    with pytest.raises(BadRow, match=r"missing: note; unknown: remark"):
        list(read_gpus(as_file(tuple("remark" if c == "note" else c for c in GPU_COLUMNS))))
    with pytest.raises(BadRow, match="line 1"):
        list(read_models(io.StringIO("")))


def test_a_row_with_too_few_or_too_many_cells_is_refused() -> None:
    header = ",".join(GPU_COLUMNS)
    for cells in ("a,b", "," * len(GPU_COLUMNS)):
        with pytest.raises(BadRow, match=f"line 2: the row does not have {len(GPU_COLUMNS)} cells"):
            list(read_gpus(io.StringIO(f"{header}\n{cells}\n")))


def test_a_quote_that_never_ends_is_refused() -> None:
    with pytest.raises(BadRow):
        list(read_gpus(io.StringIO(",".join(GPU_COLUMNS) + '\n"a')))


def test_the_catalogues_are_read_once_and_cannot_be_changed() -> None:
    assert load_models() is load_models()
    assert load_gpus() is load_gpus()
    with pytest.raises(TypeError):
        load_models()["x"] = None  # type: ignore[index]


def test_models_are_keyed_by_their_hub_id() -> None:
    assert all(
        isinstance(architecture, Architecture) and architecture.name == name for name, architecture in load_models().items()
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"), ("META-LLAMA/llama-2-7B-HF", "meta-llama/Llama-2-7b-hf"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"), (" gpt2 ", "openai-community/gpt2"),
        ("TinyLlama-1.1B-Chat-v1.0", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ],
)  # fmt: skip
def test_a_model_is_found_by_id_variant_and_short_name(asked: str, found: str) -> None:
    assert find_model(asked).name == found


def test_a_variant_has_the_architecture_of_its_row() -> None:
    base, chat = find_model("meta-llama/Llama-2-7b-hf"), find_model("meta-llama/Llama-2-7b-chat-hf")
    assert chat == base.model_copy(update={"name": "meta-llama/Llama-2-7b-chat-hf"})


def test_every_known_name_is_found() -> None:
    assert len(known_models()) > len(load_models())
    assert all(find_model(name).name == name for name in known_models())


def test_a_mistyped_model_suggests_near_names() -> None:
    with pytest.raises(UnknownName, match=r"no model named 'Llama-3\.1-8b-Instrct'; did you mean") as caught:
        find_model("Llama-3.1-8b-Instrct")
    assert caught.value.suggestions[0] == "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("t4", "t4"), ("Tesla T4", "t4"), ("A10G", "a10g"), ("rtx4090", "rtx-4090-24"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090-24"), ("H100", "h100-sxm5-80"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80"),
        ("NVIDIA H200", "h200-sxm-141"), ("rtx a6000", "rtx-a6000"),
    ],
)  # fmt: skip
def test_a_card_is_found_as_people_and_torch_write_it(asked: str, found: str) -> None:
    assert find_gpu(asked).id == found


def test_a_name_that_several_cards_share_asks_which() -> None:
    with pytest.raises(AmbiguousName, match="no GPU named 'a100', but several whose name holds it; which one: ") as caught:
        find_gpu("a100")
    assert caught.value.suggestions == ["A100-PCIe-40GB", "A100-40GB", "A100-PCIe-80GB", "A100-80GB"]
    assert {find_gpu(name).id for name in caught.value.suggestions} == {i for i in load_gpus() if i.startswith("a100")}
    with pytest.raises(UnknownName, match="did you mean 'A10G-24GB'"):
        find_gpu("A10G-24")
    with pytest.raises(UnknownName):
        find_gpu("")


@pytest.mark.parametrize(
    ("name", "gib"), [("T4", 14.5625), ("A10G", 22), ("RTX 4090", 23.6), ("A100-40GB", 39.4), ("A100-80GB", 79.2), ("H200", 139)]
)
def test_memory_that_programs_were_seen_to_have_is_taken_as_it_is(name: str, gib: float) -> None:
    assert find_gpu(name).usable_memory_bytes == pytest.approx(gib * GiB, abs=MiB)


def test_usable_memory_is_never_more_than_what_is_stated() -> None:
    assert max(USABLE_SHARE.values()) == 1
    for gpu in load_gpus().values():
        assert 0.9 * gpu.memory_bytes < gpu.usable_memory_bytes <= gpu.memory_bytes


def test_the_data_folder_is_the_repository_s_or_the_wheel_s() -> None:
    assert (catalogues.data_folder() / "README.md").is_file()


PROVIDER_ROW = {"id": "cloud", "name": "Cloud", "kind": "gpu cloud", "source": "a test", "retrieved": "2026-12-01"}
OFFER_ROW = {
    "provider_id": "aws", "instance_type": "x.large", "tier": "on-demand", "gpu_id": "l4", "gpu_name": "L4", "gpu_count": "4",
    "host_memory_gib": "192", "currency": "USD", "usd_per_hour": "4.6", "usd_per_hour_median": "4.8", "source": "a test",
    "price_date": "2026-05-01", "price_date_estimated": "yes", "price_date_note": "undated; about May-July 2026",
}  # fmt: skip


def test_an_offer_is_read_in_base_units_and_its_blanks_are_none() -> None:
    (offer,) = read_offers(as_file(OFFER_COLUMNS, OFFER_ROW))
    assert (offer.host_memory_bytes, offer.disk_bytes, offer.vcpus) == (192 * GiB, None, None)
    assert (offer.usd_per_hour, offer.usd_per_hour_median, offer.spot_usd_per_hour, offer.regions) == (4.6, 4.8, None, None)
    assert (offer.price_date, offer.price_date_estimated) == (date(2026, 5, 1), True)


def test_a_provider_keeps_unknown_apart_from_free() -> None:
    free = {**PROVIDER_ROW, "egress_usd_per_gb": "0", "spot_notice_s": "120", "unverified": "ssh; docker", "ssh": "yes"}
    (provider,) = read_providers(as_file(PROVIDER_COLUMNS, free))
    assert (provider.egress_usd_per_gb, provider.running_storage_usd_per_gb_month, provider.billing) == (0, None, None)
    assert (provider.spot_notice_s, provider.unverified, provider.ssh, provider.docker) == (120, ("ssh", "docker"), True, None)


def test_the_age_of_a_price_is_counted_in_days_from_its_date() -> None:
    (offer,) = read_offers(as_file(OFFER_COLUMNS, OFFER_ROW))
    assert offer.age_days(date(2026, 12, 1)) == 30 + 30 + 31 + 31 + 30 + 31 + 30 + 1 == 214  # rest of May, June .. November, one
    assert offer.model_copy(update={"price_date": None}).age_days(date(2026, 12, 1)) is None


@pytest.mark.parametrize(
    ("column", "cell", "named"),
    [
        ("usd_per_hour", "-1", "usd_per_hour"), ("usd_per_hour", "0", "usd_per_hour"), ("usd_per_hour", "nan", "usd_per_hour"),
        ("usd_per_hour", "inf", "usd_per_hour"), ("usd_per_hour", "4,6", "usd_per_hour"), ("usd_per_hour", "$4", "usd_per_hour"),
        ("usd_per_hour_median", "40000.01", "usd_per_hour_median"), ("usd_per_hour_median", "4.5", "usd_per_hour_median"),
        ("usd_per_hour", "", "usd_per_hour"), ("spot_usd_per_hour", "1e300", "spot_usd_per_hour"),
        ("spot_usd_per_hour_median", "2", "spot_usd_per_hour_median"), ("currency", "EUR", "currency"), ("currency", "", "currency"),
        ("currency", "usd", "currency"), ("provider_id", "nobody", "provider_id"), ("provider_id", "", "provider_id"),
        ("gpu_id", "L4", "gpu_id"), ("gpu_name", "", "gpu_name"), ("gpu_count", "0.5", "gpu_count"), ("gpu_count", "", "gpu_count"),
        ("gpu_count", "-4", "gpu_count"), ("tier", "cheap", "tier"), ("host_memory_gib", "192 GB", "host_memory_gib"),
        ("disk_gib", "0", "disk_gib"), ("vcpus", "20-30", "vcpus"), ("price_date", "20260501", "price_date"),
        ("price_date", "2026-02-30", "price_date"), ("price_date", "undated", "price_date"), ("source", "", "source"),
        ("price_date_estimated", "perhaps", "price_date_estimated"), ("regions", "0", "regions"), ("instance_type", "", "instance_type"),
    ],
)  # fmt: skip
def test_a_bad_cell_of_an_offer_is_named_with_its_file_and_line(column: str, cell: str, named: str) -> None:
    with pytest.raises(BadRow, match=r"test\.csv, line 3") as caught:
        list(read_offers(as_file(OFFER_COLUMNS, {**OFFER_ROW, "instance_type": "fine"}, {**OFFER_ROW, column: cell})))
    assert repr(named) in str(caught.value)


def test_another_currency_is_refused_in_one_sentence() -> None:
    with pytest.raises(BadRow) as caught:
        list(read_offers(as_file(OFFER_COLUMNS, {**OFFER_ROW, "currency": "EUR"})))
    assert str(caught.value) == (
        "test.csv, line 2, column 'currency': 'EUR' is not 'USD'; prices in another currency are not mixed in, convert them first"
    )


def test_an_offer_without_any_price_is_refused_and_one_at_the_limit_is_not() -> None:
    with pytest.raises(BadRow, match="an offer needs a price, on demand or spot"):
        list(read_offers(as_file(OFFER_COLUMNS, {**OFFER_ROW, "usd_per_hour": "", "usd_per_hour_median": ""})))
    (dear,) = read_offers(as_file(OFFER_COLUMNS, {**OFFER_ROW, "usd_per_hour_median": "40000"}))
    assert dear.usd_per_hour_median == 4 * 10_000


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("billing", "day"), ("kind", ""), ("kind", "cloud"), ("can_stop", "true"), ("egress_usd_per_gb", "-0.1"),
        ("egress_usd_per_gb", "0.09 (first 100 GB free)"), ("running_storage_usd_per_gb_month", "nan"), ("spot_notice_s", "0"),
        ("egress_free_gb_per_month", "0"), ("unverified", "billing; colour"), ("retrieved", ""), ("retrieved", "2026-10"),
        ("source", ""), ("id", "My Cloud"), ("name", ""),
    ],
)  # fmt: skip
def test_a_bad_cell_of_a_provider_is_named_with_its_file_and_line(column: str, cell: str) -> None:
    with pytest.raises(BadRow, match=r"test\.csv, line 3") as caught:
        list(read_providers(as_file(PROVIDER_COLUMNS, {**PROVIDER_ROW, "id": "fine"}, {**PROVIDER_ROW, column: cell})))
    assert repr(column) in str(caught.value)


def test_a_key_that_is_used_twice_is_refused_with_the_line_of_the_first() -> None:
    with pytest.raises(BadRow, match=r"line 4, column 'instance_type': 'x\.large' is not new: line 2 has it already"):
        list(read_offers(as_file(OFFER_COLUMNS, OFFER_ROW, {**OFFER_ROW, "gpu_count": "1"}, OFFER_ROW)))
    with pytest.raises(BadRow, match=r"line 3, column 'id': 'cloud' is not new: line 2 has it already"):
        list(read_providers(as_file(PROVIDER_COLUMNS, PROVIDER_ROW, PROVIDER_ROW)))


def test_offers_that_are_written_are_read_back_as_they_were() -> None:
    assert tuple(read_offers(io.StringIO(offers_csv(load_offers())))) == load_offers()


@given(st.text(max_size=60), st.sampled_from(OFFER_COLUMNS))
def test_any_text_in_any_cell_is_read_or_refused_in_a_sentence(cell: str, column: str) -> None:
    text = ",".join(OFFER_COLUMNS) + "\n" + ",".join(cell if c == column else OFFER_ROW.get(c, "") for c in OFFER_COLUMNS)
    try:
        list(read_offers(io.StringIO(text, newline="")))
    except BadRow as error:
        assert "\n" not in str(error)
