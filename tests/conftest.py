"""Models and cards that many tests use."""

import pytest

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model
from planner.hardware import Gpu


@pytest.fixture(scope="session")
def llama_2_7b() -> Architecture:
    return find_model("meta-llama/Llama-2-7b-hf")


@pytest.fixture(scope="session")
def llama_3_8b() -> Architecture:
    return find_model("meta-llama/Llama-3.1-8B")


@pytest.fixture(scope="session")
def rtx_4090() -> Gpu:
    return find_gpu("rtx-4090-24")


@pytest.fixture(scope="session")
def t4() -> Gpu:
    return find_gpu("t4")
