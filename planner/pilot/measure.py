"""What a pilot reads while it runs: torch's own count of memory, the driver's by NVML, the host's RAM, and the environment."""

import contextlib
import platform
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

__all__ = ["Nvml", "components", "environment", "memory", "new_peak"]

_PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "nvidia-ml-py", "flash-attn", "finetune-planner")


def memory(device: str) -> dict[str, int]:
    """Bytes now and at the peak since `new_peak`; on a CPU the process' RAM, which is no GPU memory."""
    if device == "cpu":
        return {"host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    torch.cuda.synchronize()
    return {
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
    """The driver's figures of the first card, sampled in a thread; where NVML is missing or lost, there are none."""

    def __init__(self, period_s: float = 0.25) -> None:
        self.samples: list[dict[str, float]] = []
        self._period_s, self._stop = period_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Nvml":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2)

    def _run(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            card = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not self._stop.wait(self._period_s):
                self.samples.append(
                    {
                        "at": time.time(), "used_bytes": pynvml.nvmlDeviceGetMemoryInfo(card).used,
                        "watts": pynvml.nvmlDeviceGetPowerUsage(card) / 1000,
                        "utilisation": pynvml.nvmlDeviceGetUtilizationRates(card).gpu / 100,
                        "celsius": pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
                    }
                )  # fmt: skip
        except Exception:  # noqa: BLE001 (a driver that goes away takes no pilot with it)
            return

    def summary(self) -> dict[str, float]:
        """The most that was used, and means."""
        if not self.samples:
            return {}
        count = len(self.samples)
        return {
            "peak_used_bytes": max(sample["used_bytes"] for sample in self.samples),
            **{f"mean_{name}": sum(s[name] for s in self.samples) / count for name in ("watts", "utilisation", "celsius")},
        }
