"""gpus.csv -> cards, and finding one by name."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import IO, Any

from pydantic import ValidationError

from planner.catalogues.rows import data_folder, rows
from planner.errors import AmbiguousName, UnknownName, first_problem
from planner.hardware import Gpu
from planner.units import MiB

__all__ = ["GPU_COLUMNS", "find_gpu", "load_gpus", "read_gpus"]

GPU_COLUMNS = (
    "id", "name", "aliases", "vendor", "segment", "architecture", "compute_capability", "memory_mib", "memory_basis",
    "memory_type", "memory_bandwidth_gb_per_s", "bf16_dense_tflops", "fp16_dense_tflops", "fp8_dense_tflops",
    "int8_dense_tops", "supports_bf16", "supports_4bit", "supports_int8", "supports_flash_attention", "nvlink_gb_per_s",
    "pcie_generation", "tdp_watts", "release_year", "note", "source", "retrieved",
)  # fmt: skip


def read_gpus(file: IO[str]) -> Iterator[Gpu]:
    """The rows of a gpus.csv that is open for reading. Raises BadRow with file, line, column and value."""
    for row in rows(file, GPU_COLUMNS):
        memory_mib = row.size("memory_mib")
        if memory_mib is None:
            raise row.bad("memory_mib", "a positive whole number of MiB")
        values: dict[str, Any] = {column: row.cells[column] for column in _GPU_TEXTS}
        values |= {column: row.flag(column) for column in GPU_COLUMNS if column.startswith("supports_")}
        values |= {
            "aliases": row.texts("aliases"),
            "compute_capability": row.convert("compute_capability", _capability, "major.minor"),
            "memory_bytes": memory_mib * MiB,
            "memory_bandwidth_bytes_per_s": row.number("memory_bandwidth_gb_per_s", 1e9),
            "peak_bf16_flops_per_s": row.number("bf16_dense_tflops", 1e12),
            "peak_fp16_flops_per_s": row.number("fp16_dense_tflops", 1e12),
            "peak_fp8_flops_per_s": row.number("fp8_dense_tflops", 1e12),
            "peak_int8_ops_per_s": row.number("int8_dense_tops", 1e12),
            "nvlink_bytes_per_s": row.number("nvlink_gb_per_s", 1e9),
            "pcie_generation": row.size("pcie_generation"),
            "tdp_watts": row.number("tdp_watts"),
            "release_year": row.size("release_year"),
        }
        try:
            yield Gpu(**values)
        except ValidationError as error:
            raise row.broken(first_problem(error)) from error


_GPU_TEXTS = ("id", "name", "vendor", "segment", "architecture", "memory_basis", "memory_type", "note", "source", "retrieved")


def _capability(cell: str) -> tuple[int, int]:
    major, minor = cell.split(".")
    return int(major), int(minor)


@cache
def load_gpus() -> Mapping[str, Gpu]:
    """The cards that ship with the planner, by id."""
    with open(data_folder() / "gpus.csv", encoding="utf-8", newline="") as file:
        return MappingProxyType({gpu.id: gpu for gpu in read_gpus(file)})


@cache
def _gpus_by_key() -> dict[str, Gpu]:
    names = ((name, gpu) for gpu in load_gpus().values() for name in (gpu.id, gpu.name, gpu.label, *gpu.aliases))
    index: dict[str, Gpu] = {}
    for name, gpu in names:
        index.setdefault(_plain(name), gpu)
    return index


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia")


def find_gpu(name: str) -> Gpu:
    """The card of an id, a name, an alias or torch's device name; case, spaces and hyphens do not matter.

    Raises UnknownName with the cards whose name is like it; AmbiguousName where it is part of the names of several cards.
    """
    asked = _plain(name)
    if gpu := _gpus_by_key().get(asked):
        return gpu
    names = [(gpu.id, other) for gpu in load_gpus().values() for other in (*gpu.aliases, gpu.label)]
    holding = [(card, other) for card, other in names if asked and asked in _plain(other)]
    if len(one_each := dict(reversed(holding))) > 1:
        raise AmbiguousName("GPU", name, reversed(one_each.values()))
    raise UnknownName("GPU", name, [other for _, other in holding or names])
