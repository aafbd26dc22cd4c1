"""models.csv -> architectures, and finding one by name."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from planner.architecture import Architecture
from planner.catalogues.rows import Row, data_folder, rows
from planner.errors import InvalidJob, UnknownName
from planner.families import architecture_from_config

__all__ = [
    "CONFIG_COLUMNS",
    "MODEL_COLUMNS",
    "CatalogueModel",
    "find_model",
    "known_models",
    "load_catalogue",
    "load_models",
    "read_models",
]

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


def _config(row: Row) -> dict[str, Any]:
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
    for row in rows(file, MODEL_COLUMNS):
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


@cache
def load_catalogue() -> Mapping[str, CatalogueModel]:
    """The models that ship with the planner, by Hub id, with their totals, licences and sources."""
    with open(data_folder() / "models.csv", encoding="utf-8", newline="") as file:
        return MappingProxyType({row.architecture.name: row for row in read_models(file)})


@cache
def load_models() -> Mapping[str, Architecture]:
    """The architectures that ship with the planner, by Hub id."""
    return MappingProxyType({name: row.architecture for name, row in load_catalogue().items()})


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


def find_model(name: str) -> Architecture:
    """The architecture of a Hub id, a variant's id, or the part after its '/'. Raises UnknownName with suggestions."""
    try:
        return _models_by_key()[name.strip().lower()]
    except KeyError:
        raise UnknownName("model", name, known_models()) from None
