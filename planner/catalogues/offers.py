"""offers.csv and providers.csv -> what is rented out, by whom and at which price."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cache
from io import StringIO
from types import MappingProxyType
from typing import IO, Any

from pydantic import ValidationError

from planner.catalogues.gpus import load_gpus
from planner.catalogues.rows import Row, data_folder, rows
from planner.errors import first_problem
from planner.hardware import Offer, Provider
from planner.units import GiB

__all__ = [
    "OFFER_COLUMNS", "PROVIDER_COLUMNS", "load_offers", "load_providers", "offers_csv", "read_offers", "read_providers",
]  # fmt: skip

PROVIDER_COLUMNS = (
    "id", "name", "kind", "billing", "storage_survives_stop", "running_storage_usd_per_gb_month",
    "stopped_storage_usd_per_gb_month", "egress_usd_per_gb", "egress_free_gb_per_month", "can_stop", "has_spot", "spot_notice_s",
    "ssh", "docker", "jupyter", "multi_node", "node_fabric", "nvlink_in_node", "unverified", "note", "source", "retrieved",
)  # fmt: skip
OFFER_COLUMNS = (
    "provider_id", "instance_type", "tier", "gpu_id", "gpu_name", "gpu_count", "vcpus", "host_memory_gib", "disk_gib",
    "fabric_gb_per_s_per_gpu", "currency", "usd_per_hour", "usd_per_hour_median", "spot_usd_per_hour",
    "spot_usd_per_hour_median", "regions", "region", "note", "source", "price_date", "price_date_estimated", "price_date_note",
)  # fmt: skip
_PROVIDER_TEXTS = ("id", "name", "kind", "node_fabric", "nvlink_in_node", "note", "source")
_PROVIDER_FEES = (
    "running_storage_usd_per_gb_month", "stopped_storage_usd_per_gb_month", "egress_usd_per_gb",
)  # fmt: skip
_PROVIDER_FLAGS = ("storage_survives_stop", "can_stop", "has_spot", "ssh", "docker", "jupyter", "multi_node")
_OFFER_TEXTS = ("provider_id", "instance_type", "tier", "gpu_name", "region", "note", "source", "price_date_note")
_OFFER_PRICES = ("usd_per_hour", "usd_per_hour_median", "spot_usd_per_hour", "spot_usd_per_hour_median")


def _day(cell: str) -> date:
    if (day := date.fromisoformat(cell)).isoformat() != cell:
        raise ValueError(cell)
    return day


def _date(row: Row, column: str) -> date | None:
    return row.convert(column, _day, "a date, YYYY-MM-DD")


def read_providers(file: IO[str]) -> Iterator[Provider]:
    """The rows of a providers.csv that is open for reading. Raises BadRow with file, line, column and value."""
    seen: dict[str, int] = {}
    for row in rows(file, PROVIDER_COLUMNS):
        values: dict[str, Any] = {column: row.cells[column] for column in _PROVIDER_TEXTS}
        values |= {column: row.fee(column) for column in _PROVIDER_FEES}
        values |= {column: row.flag(column) for column in _PROVIDER_FLAGS}
        values |= {
            "billing": row.cells["billing"] or None,
            "egress_free_gb_per_month": row.number("egress_free_gb_per_month"),
            "spot_notice_s": row.number("spot_notice_s"),
            "unverified": row.texts("unverified"),
            "retrieved": _date(row, "retrieved"),
        }
        try:
            provider = Provider(**values)
        except ValidationError as error:
            raise row.broken(first_problem(error)) from error
        row.refuse_repeated(provider.id, seen, "id")
        yield provider


def read_offers(file: IO[str]) -> Iterator[Offer]:
    """The rows of an offers.csv that is open for reading; prices are in USD only, and cards and providers known ones.

    Raises BadRow with file, line, column and value.
    """
    seen: dict[tuple[str, str, str, str, int], int] = {}
    for row in rows(file, OFFER_COLUMNS):
        if row.cells["currency"] != "USD":
            raise row.bad("currency", "'USD'; prices in another currency are not mixed in, convert them first")
        if row.cells["provider_id"] not in load_providers():
            raise row.bad("provider_id", "a provider of providers.csv")
        if row.cells["gpu_id"] and row.cells["gpu_id"] not in load_gpus():
            raise row.bad("gpu_id", "a card of gpus.csv, or blank")
        values: dict[str, Any] = {column: row.cells[column] for column in _OFFER_TEXTS}
        values |= {column: row.number(column) for column in _OFFER_PRICES}
        values |= {column: row.size(column) for column in ("gpu_count", "vcpus", "regions")}
        values |= {
            "gpu_id": row.cells["gpu_id"] or None,
            "host_memory_bytes": row.bytes("host_memory_gib"),
            "disk_bytes": row.bytes("disk_gib"),
            "fabric_bytes_per_s_per_gpu": row.number("fabric_gb_per_s_per_gpu", 1e9),
            "price_date": _date(row, "price_date"),
            "price_date_estimated": row.flag("price_date_estimated") or False,
        }
        try:
            offer = Offer(**values)
        except ValidationError as error:
            raise row.broken(first_problem(error)) from error
        row.refuse_repeated(offer.key, seen, "instance_type")
        yield offer


def offers_csv(offers: Iterable[Offer]) -> str:
    """The text of an offers.csv that `read_offers` reads back to the same records."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(OFFER_COLUMNS)
    for offer in offers:
        cells = {column: "" if (value := getattr(offer, column, None)) is None else value for column in OFFER_COLUMNS}
        for column, size in (("host_memory_gib", offer.host_memory_bytes), ("disk_gib", offer.disk_bytes)):
            cells[column] = "" if size is None else size / GiB
        fabric = offer.fabric_bytes_per_s_per_gpu
        cells["fabric_gb_per_s_per_gpu"] = "" if fabric is None else fabric / 1e9
        cells |= {"currency": "USD", "price_date_estimated": "yes" if offer.price_date_estimated else "no"}
        writer.writerow([cells[column] for column in OFFER_COLUMNS])
    return file.getvalue()


@cache
def load_providers() -> Mapping[str, Provider]:
    """The providers that ship with the planner, by id."""
    with open(data_folder() / "providers.csv", encoding="utf-8", newline="") as file:
        return MappingProxyType({provider.id: provider for provider in read_providers(file)})


@cache
def load_offers() -> tuple[Offer, ...]:
    """The offers that ship with the planner, at the prices of their dates; `planner.prices` has those that were refreshed."""
    with open(data_folder() / "offers.csv", encoding="utf-8", newline="") as file:
        return tuple(read_offers(file))
