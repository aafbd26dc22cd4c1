"""data/*.csv -> records: the only module that opens the data files. A bad row raises BadRow; nothing is skipped."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple, TypeVar

from pydantic import ValidationError

from planner.architecture import Architecture
from planner.errors import BadRow, InvalidJob, UnknownName, first_problem
from planner.families import architecture_from_config
from planner.hardware import Gpu
from planner.units import MiB

__all__ = [
    "CONFIG_COLUMNS", "GPU_COLUMNS", "MODEL_COLUMNS", "CatalogueModel", "data_folder", "find_gpu", "find_model", "known_models",
    "load_catalogue", "load_gpus", "load_models", "read_gpus", "read_models",
]  # fmt: skip

# Fields of config.json by the name that planner.families reads; a blank cell is a field that the config does not have.
CONFIG_COLUMNS = (
    "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "intermediate_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings", "hidden_act", "attention_bias",
    "mlp_bias", "sliding_window", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
    "shared_expert_intermediate_size", "first_k_dense_replace", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "torch_dtype",
)  # fmt: skip
_TEXT_COLUMNS = ("model_type", "hidden_act", "torch_dtype")
_FLAG_COLUMNS = ("tie_word_embeddings", "attention_bias", "mlp_bias")
_WHOLE_COLUMNS = tuple(column for column in CONFIG_COLUMNS if column not in _TEXT_COLUMNS + _FLAG_COLUMNS)
MODEL_COLUMNS = (
    "hf_id", *CONFIG_COLUMNS, "other_config", "published_params", "published_params_source", "variants", "licence", "gated",
    "source", "retrieved",
)  # fmt: skip
GPU_COLUMNS = (
    "id", "name", "aliases", "vendor", "segment", "architecture", "compute_capability", "memory_mib", "memory_basis",
    "memory_type", "memory_bandwidth_gb_per_s", "bf16_dense_tflops", "fp16_dense_tflops", "fp8_dense_tflops",
    "int8_dense_tops", "supports_bf16", "supports_4bit", "supports_int8", "supports_flash_attention", "nvlink_gb_per_s",
    "pcie_generation", "tdp_watts", "release_year", "note", "source", "retrieved",
)  # fmt: skip

_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)


class CatalogueModel(NamedTuple):
    """One row of models.csv: the architecture, and the independent total that tests hold it to."""

    architecture: Architecture
    variants: tuple[str, ...]  # other Hub ids of the same architecture
    published_params: int
    published_params_source: str
    licence: str
    gated: bool | None
    source: str
    retrieved: str


class _Row(NamedTuple):
    """The cells of one row, and where they stand; a cell that cannot be read raises BadRow with all of that."""

    cells: Mapping[str, str]
    file: str
    line: int

    def bad(self, column: str, expected: str) -> BadRow:
        return BadRow(
            "{file}, line {line}, column {column!r}: {value!r} is not {expected}",
            file=self.file, line=self.line, column=column, value=self.cells.get(column, "")[:80], expected=expected,
        )  # fmt: skip

    def broken(self, problem: InvalidJob) -> BadRow:
        return BadRow(
            "{file}, line {line}, column {column!r}: {problem}",
            field=problem.field, file=self.file, line=self.line, column=problem.field, problem=str(problem),
        )  # fmt: skip

    def text(self, column: str) -> str:
        if not self.cells[column]:
            raise self.bad(column, "a text; this column may not be blank")
        return self.cells[column]

    def texts(self, column: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.cells[column].split(";") if part.strip())

    def number(self, column: str, factor: float = 1) -> float | None:
        """The positive number in base units; `factor` is the size of the column's unit."""
        return self.convert(column, lambda cell: _positive(float(cell)) * factor, "a positive number or blank")

    def size(self, column: str) -> int | None:
        return self.convert(column, lambda cell: _positive(int(cell)), "a positive whole number or blank")

    def whole(self, column: str) -> int | None:
        return self.convert(column, int, "a whole number or blank")

    def flag(self, column: str, yes: str = "yes", no: str = "no") -> bool | None:
        return self.convert(column, {yes: True, no: False}.__getitem__, f"{yes!r}, {no!r} or blank")

    def convert(self, column: str, convert: Callable[[str], _T], expected: str) -> _T | None:
        cell = self.cells[column]
        try:
            return convert(cell) if cell else None
        except (ValueError, LookupError) as error:
            raise self.bad(column, expected) from error


def _positive(value: _Number) -> _Number:
    if not 0 < value < math.inf:
        raise ValueError(value)
    return value


def _rows(file: IO[str], columns: tuple[str, ...]) -> Iterator[_Row]:
    name = Path(str(getattr(file, "name", "data"))).name
    reader = csv.DictReader(file, strict=True)
    header = tuple(reader.fieldnames or ())
    if header != columns:
        missing, unknown = (", ".join(sorted(some)) for some in (set(columns) - set(header), set(header) - set(columns)))
        raise BadRow(
            "{file}, line 1: the columns are not the expected ones (missing: {missing}; unknown: {unknown}; their order counts)",
            file=name, missing=missing or "none", unknown=unknown or "none",
        )  # fmt: skip
    try:
        for cells in reader:
            if None in cells or None in cells.values():
                problem = f"the row does not have {len(columns)} cells"
                raise BadRow("{file}, line {line}: {problem}", file=name, line=reader.line_num, problem=problem)
            yield _Row(cells, name, reader.line_num)
    except csv.Error as error:
        raise BadRow("{file}, line {line}: {problem}", file=name, line=reader.line_num, problem=str(error)) from error


def _config(row: _Row) -> dict[str, Any]:
    config: dict[str, Any] = {column: row.cells[column] for column in _TEXT_COLUMNS}
    config |= {column: row.whole(column) for column in _WHOLE_COLUMNS}
    config |= {column: row.flag(column, "true", "false") for column in _FLAG_COLUMNS}
    try:
        other = json.loads(row.cells["other_config"] or "{}")
    except ValueError as error:
        raise row.bad("other_config", "a JSON object") from error
    if not isinstance(other, dict):
        raise row.bad("other_config", "a JSON object")
    return {field: value for field, value in (config | other).items() if value not in ("", None)}


def read_models(file: IO[str]) -> Iterator[CatalogueModel]:
    """The rows of a models.csv that is open for reading. Raises BadRow with file, line, column and value."""
    for row in _rows(file, MODEL_COLUMNS):
        try:
            architecture = architecture_from_config(_config(row), name=row.text("hf_id"), source=row.text("source"))
        except InvalidJob as error:
            raise row.broken(error) from error
        published = row.size("published_params")
        if published is None:
            raise row.bad("published_params", "a positive whole number")
        yield CatalogueModel(
            architecture=architecture,
            variants=row.texts("variants"),
            published_params=published,
            published_params_source=row.text("published_params_source"),
            licence=row.text("licence"),
            gated=row.flag("gated"),
            source=row.text("source"),
            retrieved=row.text("retrieved"),
        )


def read_gpus(file: IO[str]) -> Iterator[Gpu]:
    """The rows of a gpus.csv that is open for reading. Raises BadRow with file, line, column and value."""
    for row in _rows(file, GPU_COLUMNS):
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


def data_folder() -> Path:
    """Where the CSV files are: inside the package when installed from a wheel, beside it in the repository."""
    inside = Path(__file__).parent / "data"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "data"


@cache
def load_catalogue() -> Mapping[str, CatalogueModel]:
    """The models that ship with the planner, by Hub id, with their totals, licences and sources."""
    with open(data_folder() / "models.csv", encoding="utf-8", newline="") as file:
        return MappingProxyType({row.architecture.name: row for row in read_models(file)})


@cache
def load_models() -> Mapping[str, Architecture]:
    """The architectures that ship with the planner, by Hub id."""
    return MappingProxyType({name: row.architecture for name, row in load_catalogue().items()})


@cache
def load_gpus() -> Mapping[str, Gpu]:
    """The cards that ship with the planner, by id."""
    with open(data_folder() / "gpus.csv", encoding="utf-8", newline="") as file:
        return MappingProxyType({gpu.id: gpu for gpu in read_gpus(file)})


def known_models() -> list[str]:
    """Every Hub id that `find_model` answers: those of the rows, then their variants."""
    rows = load_catalogue()
    return [*rows, *(variant for row in rows.values() for variant in row.variants)]


@cache
def _models_by_key() -> dict[str, Architecture]:
    index: dict[str, Architecture] = {}
    for name, row in load_catalogue().items():
        index[name.lower()] = row.architecture
        for variant in row.variants:
            index[variant.lower()] = row.architecture.model_copy(update={"name": variant})
    for key in list(index):
        index.setdefault(key.rsplit("/", 1)[-1], index[key])
    return index


@cache
def _gpus_by_key() -> dict[str, Gpu]:
    names = ((name, gpu) for gpu in load_gpus().values() for name in (gpu.id, gpu.name, gpu.label, *gpu.aliases))
    index: dict[str, Gpu] = {}
    for name, gpu in names:
        index.setdefault(_plain(name), gpu)
    return index


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia")


def find_model(name: str) -> Architecture:
    """The architecture of a Hub id, a variant's id, or the part after its '/'. Raises UnknownName with suggestions."""
    try:
        return _models_by_key()[name.strip().lower()]
    except KeyError:
        raise UnknownName("model", name, known_models()) from None


def find_gpu(name: str) -> Gpu:
    """The card of an id, a name, an alias or torch's device name; case, spaces and hyphens do not matter.

    Raises UnknownName with suggestions: the cards that hold the name, or else those with a name like it.
    """
    asked = _plain(name)
    try:
        return _gpus_by_key()[asked]
    except KeyError:
        known = [other for gpu in load_gpus().values() for other in (gpu.label, *gpu.aliases)]
        holding = [other for other in known if asked and asked in _plain(other)]
        raise UnknownName("GPU", name, holding or known) from None
