"""The load phase in front of a step: what `from_pretrained`, bitsandbytes and PEFT allocate and drop until training can begin.

It decides what the caching allocator holds when the first step starts, and so a part of `reserved`.
"""

from planner.dryrun.log import Allocation, EventLog
from planner.job import Job

__all__ = ["LOAD_BEHAVIOURS", "with_load_phase"]

LOAD_BEHAVIOURS = {
    "load_warmup": "transformers/modeling_utils.py (caching_allocator_warmup): with a device_map, as a quantised model has, one block "
    "of the model's size is taken and dropped before loading; a 4-bit weight counts half a byte per parameter there",
    "kbit_empty_cache": "peft/utils/other.py (prepare_model_for_kbit_training) from PEFT 0.20 on: the cache is emptied after the casts",
}


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Order of a state dict's names. Source: transformers/core_model_loading.py, dot_natural_key."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split(".")]


class _Loader:
    """Writes the events of the load phase; what it makes stays until `drop`."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.events, self.at = log, list[int](), list[int | None]()

    def keep(self, number: int) -> None:
        """An allocation of the log appears."""
        self.events.append(number)
        self.at.append(self.log.allocations[number].block)

    def make(self, size: float, name: str, block: int | None, *, like: int | None = None) -> int:
        """A temporary appears; its number."""
        module = "" if like is None else self.log.allocations[like].module
        self.log.allocations.append(Allocation(int(size), "temporaries", "load", module, name, block=block))
        self.keep(len(self.log.allocations) - 1)
        return self.events[-1]

    def drop(self, number: int) -> None:
        """A temporary dies."""
        self.events.append(~number)
        self.at.append(self.log.allocations[number].block)


def with_load_phase(log: EventLog, job: Job, without: frozenset[str] = frozenset()) -> EventLog:
    """The log with its load window written as the libraries run it: tensor by tensor, casts and quantisation among them.

    Source: transformers/core_model_loading.py (sorted names, one at a time where it quantises); bitsandbytes/nn/modules.py
    (Params4bit._quantize); peft/utils/other.py and tuners_utils.py (cast_adapter_dtype).
    """
    (_, start, end), *rest = log.windows()
    born = [event for event in log.events[start:end] if event >= 0]
    loader, quantized = _Loader(log), job.quantization != "none"
    adapters = [number for number in born if log.allocations[number].category == "adapters"]
    base = [number for number in born if log.allocations[number].category in ("weights", "quantization_state")]
    sorted_out = {*adapters, *base}
    others = [number for number in born if number not in sorted_out]
    narrow = job.numbers.frozen_bytes
    if quantized:
        base.sort(key=lambda number: _natural(log.allocations[number].module))  # stable: scales follow their weight
        if "load_warmup" not in without:
            loader.drop(loader.make(_warmup_bytes(log, base, job), "room for the model", None))
    upcast: list[tuple[int, int]] = []
    for number in base:
        allocation = log.allocations[number]
        if allocation.dtype == "int8" or (allocation.dtype == "uint8" and allocation.category == "weights"):
            per_byte = 2 * narrow if allocation.dtype == "uint8" else narrow
            whole = loader.make(per_byte * allocation.bytes, "weight before quantisation", allocation.block, like=number)
            loader.keep(number)
            loader.drop(whole)
        elif quantized and allocation.dtype == "float32" and allocation.category == "weights" and allocation.shape and narrow < 4:
            upcast.append((loader.make(allocation.bytes * narrow / 4, "weight as loaded", allocation.block, like=number), number))
        else:
            loader.keep(number)
    for before, number in upcast:
        loader.keep(number)
        loader.drop(before)
    emptied = len(loader.events)
    cast = [number for number in adapters if not quantized and narrow < 4 and log.allocations[number].dtype == "float32"]
    narrow_copies = {
        number: loader.make(
            log.allocations[number].bytes * narrow / 4, "adapter as made", log.allocations[number].block, like=number
        )
        for number in cast
    }
    for number in adapters:
        loader.keep(number)
        if number in narrow_copies:
            loader.drop(narrow_copies[number])
    for number in others:
        loader.keep(number)
    shift = len(loader.events) - (end - start)
    log.events[start:end], log.at[start:end] = loader.events, loader.at
    log.marks = [(0, "load")]
    if upcast and "kbit_empty_cache" not in without:
        log.marks.append((emptied, "empty cache"))
    log.marks += [(position + shift, name) for name, position, _ in rest]
    return log


def _warmup_bytes(log: EventLog, base: list[int], job: Job) -> int:
    narrow = job.numbers.frozen_bytes
    total = 0.0
    for number in base:
        allocation = log.allocations[number]
        if allocation.category == "weights":
            wide = allocation.dtype == "float32" and allocation.shape and narrow < 4
            total += allocation.bytes * (narrow / 4 if wide else 1)
    return int(total) // 2 * 2
