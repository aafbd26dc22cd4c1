"""Models and cards that many tests use, and a dry run made by hand."""

import pytest

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model
from planner.dryrun import DryRun
from planner.dryrun.allocator import replay
from planner.dryrun.log import Allocation, EventLog
from planner.dryrun.summary import DryRunSummary, summarised
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions
from planner.units import GiB


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests last: Playwright leaves an event loop running in this thread, and then asyncio.run refuses."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


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


@pytest.fixture(scope="session")
def small_dry_run() -> DryRun:
    """Two steps with a dozen allocations of a GiB or two: 4 GiB of weights, and at the loss 4 GiB more."""
    log = EventLog()

    def birth(gib: float, category: str, phase: str, operator: str, block: int | None = None) -> int:
        module = f"model.layers.{block}.mlp" if block is not None else "lm_head"
        log.allocations.append(Allocation(int(gib * GiB), category, phase, module, operator, (int(gib * GiB),), "uint8", block))
        log.events.append(len(log.allocations) - 1)
        log.at.append(block)
        return len(log.allocations) - 1

    def death(number: int) -> None:
        log.events.append(~number)
        log.at.append(log.allocations[number].block)

    log.mark("load")
    birth(2, "weights", "load", "parameter", 0)
    birth(2, "weights", "load", "parameter", 29)
    states = None
    for step in ("step 1", "step 2"):
        log.mark(f"{step} forward")
        kept = [birth(0.5, "activations", "forward", "add", block) for block in (0, 29)]
        logits = birth(1, "logits", "forward", "linear")
        log.mark(f"{step} backward")
        copy = birth(2, "logits", "backward", "_log_softmax_backward_data")
        death(logits)
        death(copy)
        gradients = []
        for block, activation in zip((29, 0), reversed(kept), strict=True):
            gradients.append(birth(0.25, "gradients", "backward", "mm", block))
            death(activation)
        log.mark(f"{step} optimizer")
        if states is None:
            states = birth(0.5, "optimizer_states", "optimizer", "zeros_like")
        death(birth(0.25, "temporaries", "optimizer", "sqrt"))
        for gradient in gradients:
            death(gradient)
    log.mark("end")
    job = Job(architecture=find_model("HuggingFaceTB/SmolLM2-135M"))
    replayed = replay(log.events, log.sizes)
    return DryRun(job, log, replayed, Assumptions().context((8, 9)), Assumptions().need_one_gpu, (0, 1, 29), {"torch": "2.13.0"})


@pytest.fixture(scope="session")
def small_summary(small_dry_run: DryRun, rtx_4090: Gpu) -> DryRunSummary:
    """The summary of that run for a card that holds it."""
    return summarised(small_dry_run, rtx_4090, seconds=12.3)
