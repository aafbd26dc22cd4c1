"""What a pilot reads while it runs: torch's own count of memory, the driver's by NVML, the host's RAM, and the environment."""

import contextlib
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

__all__ = ["Nvml", "components", "environment", "memory", "new_peak"]

_PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "nvidia-ml-py", "flash-attn", "finetune-planner")


def memory(device: str) -> dict[str, int]:
    """Bytes now and at the peak since `new_peak`, and the most RAM of the process so far; on a CPU that alone."""
    host = {"host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)}
    if device == "cpu":
        return host
    torch.cuda.synchronize()
    return {
        **host,
        "allocated_bytes": torch.cuda.memory_allocated(), "reserved_bytes": torch.cuda.memory_reserved(),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
    }  # fmt: skip


def new_peak(device: str) -> None:
    """Count peaks from here on."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()


def components(model: Any, optimizer: Any = None) -> dict[str, int]:
    """Bytes of the tensors that stay, by component, each storage once; the names are those of planner.memory."""
    sizes = dict.fromkeys(("weights", "quantization_state", "adapters", "gradients", "optimizer_states"), 0)
    seen: set[int] = set()

    def count(name: str, tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
            return
        tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # of FSDP: this rank's part
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            sizes[name] += storage.nbytes()

    adapted = hasattr(model, "peft_config") or any("bottleneck_" in name for name, _ in model.named_parameters())
    for _, parameter in model.named_parameters():
        count("adapters" if adapted and parameter.requires_grad else "weights", parameter.data)
        count("gradients", parameter.grad)
        for tensor in _scales(parameter):
            count("quantization_state", tensor)
    for module in model.modules():  # Linear8bitLt takes the scales from its parameter in the first forward
        count("quantization_state", getattr(getattr(module, "state", None), "SCB", None))
    for buffer in model.buffers():
        count("weights", buffer)
    for state in optimizer.state.values() if optimizer else ():
        for key, value in state.items():
            if key != "step":
                count("optimizer_states", value)
    return sizes


def _scales(parameter: Any) -> Iterator[Any]:
    """Scales of a quantised parameter: bitsandbytes' QuantState, or the rows' of an int8 one."""
    yield getattr(parameter, "SCB", None)
    state = getattr(parameter, "quant_state", None)
    while state is not None:
        yield from (state.absmax, state.code, getattr(state, "offset", None))
        state = state.state2


def environment(device: str) -> dict[str, Any]:
    """The card, the driver, the versions and the revision of this code."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "allocator_options": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "device": device,
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": versions,
    }
    if device != "cpu":
        found |= {"gpu": torch.cuda.get_device_name(), "compute_capability": list(torch.cuda.get_device_capability())}
        found |= {"gpu_memory_bytes": torch.cuda.get_device_properties(0).total_memory, "cuda": torch.version.cuda}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        here = Path(__file__).parent
        done = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        found["revision"] = done.stdout.strip()
    return found


class Nvml:
    """The driver's figures of this process' card, sampled in a thread; where NVML is missing or lost, `problem` says so."""

    def __init__(self, wanted: bool = True, period_s: float = 0.25) -> None:
        self.samples: list[dict[str, float]] = []
        self.problem = ""
        self._wanted, self._period_s, self._stop = wanted, period_s, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before = 0.0

    def __enter__(self) -> "Nvml":
        if self._wanted:
            self._guarded(self._begin)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._wanted:
            self._thread.join(2)

    def _guarded(self, read: Callable[[], None]) -> None:
        try:
            read()
        except Exception as error:  # noqa: BLE001 (a driver that goes away takes no pilot with it)
            self.problem = f"{type(error).__name__}: {error}"[:200]

    def _begin(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        name = visible[min(int(os.environ.get("LOCAL_RANK", "0")), len(visible) - 1)]
        find = pynvml.nvmlDeviceGetHandleByUUID if name.startswith("GPU-") else pynvml.nvmlDeviceGetHandleByIndex
        self._card = find(name if name.startswith("GPU-") else int(name or os.environ.get("LOCAL_RANK", "0")))
        self._before = float(pynvml.nvmlDeviceGetMemoryInfo(self._card).used)

    def _watch(self) -> None:
        while not self.problem and not self._stop.wait(self._period_s):
            self._guarded(self._sample)

    def _sample(self) -> None:
        import pynvml

        self.samples.append(
            {
                "used_bytes": pynvml.nvmlDeviceGetMemoryInfo(self._card).used,
                "watts": pynvml.nvmlDeviceGetPowerUsage(self._card) / 1000,
                "utilisation": pynvml.nvmlDeviceGetUtilizationRates(self._card).gpu / 100,
                "celsius": pynvml.nvmlDeviceGetTemperature(self._card, pynvml.NVML_TEMPERATURE_GPU),
            }
        )

    def summary(self) -> dict[str, float]:
        """The most that was used, what was in use before the pilot, and means."""
        if not self.samples:
            return {}
        means = {f"mean_{name}": fmean(s[name] for s in self.samples) for name in ("watts", "utilisation", "celsius")}
        return {"peak_used_bytes": max(s["used_bytes"] for s in self.samples), "used_before_bytes": self._before, **means}
