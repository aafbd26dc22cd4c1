"""data/*.csv -> records: the only package that opens the data files. A bad row raises BadRow; nothing is skipped."""

from planner.catalogues.gpus import GPU_COLUMNS, find_gpu, load_gpus, read_gpus
from planner.catalogues.models import (
    CONFIG_COLUMNS,
    MODEL_COLUMNS,
    CatalogueModel,
    find_model,
    known_models,
    load_catalogue,
    load_models,
    read_models,
)
from planner.catalogues.offers import (
    OFFER_COLUMNS,
    PROVIDER_COLUMNS,
    load_offers,
    load_providers,
    read_offers,
    read_providers,
)
from planner.catalogues.rows import data_folder

__all__ = [
    "CONFIG_COLUMNS", "GPU_COLUMNS", "MODEL_COLUMNS", "OFFER_COLUMNS", "PROVIDER_COLUMNS", "CatalogueModel", "data_folder",
    "find_gpu", "find_model", "known_models", "load_catalogue", "load_gpus", "load_models", "load_offers", "load_providers",
    "read_gpus", "read_models", "read_offers", "read_providers",
]  # fmt: skip
