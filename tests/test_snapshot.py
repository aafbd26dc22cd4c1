"""The snapshot file: PyTorch's own reader accepts it, its numbers are the replay's, and it is written whole or not at all."""

import pickle
import re
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from planner.dryrun.allocator import replay
from planner.dryrun.options import AllocatorOptions
from planner.dryrun.snapshot import write_snapshot
from planner.units import GiB, MiB

EVENTS = [0, 1, 2, ~1, 3, ~0, 4, 5]
SIZES = [30 * MiB, 5 * MiB, 1000, 8 * MiB, 0, GiB]
LABELS = ["embed weights", "layers.0 aten.mm activations", "layers.0 aten.mm activations", "lm_head logits", "empty", "too much"]
CAPACITY = 100 * MiB


def written(path: Path, **options: Any) -> dict[str, Any]:
    write_snapshot(path, EVENTS, SIZES, LABELS, capacity_bytes=CAPACITY, **options)
    content: dict[str, Any] = pickle.loads(path.read_bytes())
    return content


def memory_viz() -> Any:
    """torch/cuda/_memory_viz.py alone; importing all of torch takes longer than these tests."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        pytest.skip("torch is not installed")
    spec = spec_from_file_location("memory_viz", Path(torch.origin).parent / "cuda" / "_memory_viz.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("expandable", [False, True])
def test_pytorch_reads_it_and_finds_the_numbers_of_the_replay(tmp_path: Path, expandable: bool) -> None:
    viz = memory_viz()
    options = AllocatorOptions(expandable_segments=expandable)
    content = written(tmp_path / "run.pickle", options=options)
    out = replay(EVENTS, SIZES, options=options, capacity_bytes=CAPACITY).out_of_memory
    assert out is not None

    summary = viz.segsum(content)
    assert f"total_reserved: {viz.Bytes(out.reserved_bytes)}\n" in summary
    assert f"total_allocated: {viz.Bytes(8 * MiB + 1000)}\n" in summary
    assert sum(segment["total_size"] for segment in content["segments"]) == out.reserved_bytes
    assert sum(segment["allocated_size"] for segment in content["segments"]) == out.allocated_bytes

    told = viz.trace(content)
    assert len(re.findall(r"= \w+\[", told)) == 4  # the allocation of no bytes is not there
    assert "raise OutOfMemoryError # 1.0GiB requested" in told
    assert ("segment_map" in told) is expandable
    assert ("cudaMalloc" in told) is not expandable

    flames = viz.memory(content, format_flamegraph=lambda text: text)
    assert "active_allocated;planner:0:lm_head logits 8388608\n" in flames
    assert sum(int(line.rsplit(" ", 1)[1]) for line in flames.splitlines()) == out.reserved_bytes
    assert "base64" in viz.trace_plot(content)


def test_every_step_is_in_the_trace(tmp_path: Path) -> None:
    (trace,) = written(tmp_path / "run.pickle", empty_cache_at=frozenset({6}))["device_traces"]
    assert [entry["action"] for entry in trace] == [
        "segment_alloc", "alloc",  # 30 MiB
        "segment_alloc", "alloc",  # 5 MiB
        "segment_alloc", "alloc",  # 1000 bytes
        "free_requested", "free_completed", "alloc",  # 8 MiB where 5 MiB were
        "free_requested", "free_completed", "segment_free",  # the cache is emptied
        "oom",
    ]  # fmt: skip
    assert [entry["time_us"] for entry in trace] == list(range(13))
    assert trace[8]["addr"] == trace[3]["addr"]
    assert trace[8]["frames"] == [{"filename": "planner", "line": 0, "name": "lm_head logits"}]
    assert (trace[12]["device_free"], trace[12]["size"]) == (CAPACITY - 22 * MiB, GiB)


def test_equal_labels_are_stored_once(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "run.pickle", range(1000), [512] * 1000, ["a label of its own length"] * 1000)
    assert (tmp_path / "run.pickle").read_bytes().count(b"a label of its own length") == 1
