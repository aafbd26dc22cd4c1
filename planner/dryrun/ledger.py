"""Books every storage when it appears under the fake tensors and when it dies, with the operator and module that asked for it."""

import math
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import compress
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from planner.dryrun.cuda import Behaviours
from planner.dryrun.log import Allocation, EventLog

__all__ = ["Ledger"]

_DEVICE, _ADD = torch.ops.prim.device.default, torch.ops.aten.add.Tensor
_ONE_TENSOR = 2  # references to a storage: its tensor's, and the one that asks
_CATEGORY = {"load": "weights", "forward": "activations", "recompute": "activations"}


class Ledger(TorchDispatchMode):
    """A dispatch mode over FakeTensorMode. `stack` holds the modules that are running, outermost first.

    In backward an operator belongs to the module whose forward recorded its node (by autograd's sequence number).
    """

    def __init__(self, behaviours: Behaviours, blocks: dict[str, int | None], ancestors: set[str]) -> None:
        super().__init__()
        self.log = EventLog()
        self.phase = "load"
        self.stack: list[str] = []
        self._behaviours, self._blocks, self._ancestors = behaviours, blocks, ancestors
        self._live: dict[int, tuple[int, Any]] = {}  # storage -> its allocation, and the reference that sees it die
        self._nodes: dict[int, tuple[str, int | None]] = {}  # sequence number of a node -> module and block
        self._recomputed: dict[int, tuple[str, int | None]] = {}  # the same, of the graphs that checkpointing builds in backward
        self._outer_task = -1
        self._block: int | None = None  # of the last operator: what lies between two blocks belongs to the one before
        self._of_all = False  # tensors of all blocks die together: foreach operators hold lists of them
        self._workspaces: set[str] = set()
        self.vocabulary_elements = 0  # elements of the logits: what has as many, or their size, is `logits`

    # ---- where -------------------------------------------------------------------------------------------------------

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Everything inside belongs to `phase`."""
        outer, self.phase, self._block, self._outer_task = self.phase, phase, None, -1
        self._of_all = phase == "optimizer"
        try:
            yield
        finally:
            self.phase, self._block, self._of_all = outer, None, False
            if phase == "backward":
                self._recomputed.clear()
                self._nodes.clear()

    def watch(self, model: torch.nn.Module) -> None:
        """Keep the stack of running modules by hooks."""
        stack = self.stack

        def enter(_module: Any, _args: Any, _kwargs: Any, *, name: str) -> None:
            stack.append(name)

        def leave(_module: Any, _args: Any, _kwargs: Any, _output: Any, *, name: str) -> None:
            while stack and stack.pop() != name:
                pass

        for name, module in model.named_modules():
            module.register_forward_pre_hook(partial(enter, name=name), with_kwargs=True, prepend=True)
            module.register_forward_hook(partial(leave, name=name), with_kwargs=True, always_call=True)

    def block_of(self, module: str) -> int | None:
        """The number of the transformer block that a module is or lies in."""
        if module not in self._blocks:
            parent = module.rpartition(".")[0]
            self._blocks[module] = self.block_of(parent) if parent else None
        return self._blocks[module]

    def _place(self) -> tuple[str, int | None]:
        """Module and block of what happens now."""
        if self.stack:
            module = self.stack[-1]
            block = next((found for name in reversed(self.stack) if (found := self.block_of(name)) is not None), None)
        elif self.phase == "backward":
            node = torch._C._current_autograd_node()
            if node is None or node.name().endswith("AccumulateGrad"):
                return "accumulate gradients", self._block
            task = torch._C._current_graph_task_id()
            if self._outer_task == -1:
                self._outer_task = task
            known = self._recomputed if task != self._outer_task and self._recomputed else self._nodes
            place = known.get(node._sequence_nr())
            if place is None:
                return node.name(), self._block
            module, block = place
        else:
            return "loop", self._block
        if block is not None or module not in self._ancestors:
            self._block = block
        return module, self._block

    # ---- booking -----------------------------------------------------------------------------------------------------

    def _event(self, event: int, block: int | None) -> None:
        self.log.events.append(event)
        self.log.at.append(block)

    def close(self) -> None:
        """The run is over: what is torn down from here on is not part of it. What is in host memory leaves the log."""
        self._live.clear()
        log, kept = self.log, []
        before = [0]  # kept events before each position
        for event in log.events:
            kept.append(log.allocations[event if event >= 0 else ~event].bytes > 0)
            before.append(before[-1] + kept[-1])
        log.events, log.at = list(compress(log.events, kept)), list(compress(log.at, kept))
        log.marks = [(before[position], name) for position, name in log.marks]

    def allocation_of(self, tensor: torch.Tensor) -> Allocation | None:
        """The allocation behind a tensor."""
        tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor holds nothing itself
        known = self._live.get(tensor.untyped_storage()._cdata)
        return None if known is None else self.log.allocations[known[0]]

    def book(self, tensor: torch.Tensor, category: str, operator: str, module: str = "", block: int | None = None) -> None:
        """Book the storage of a fake tensor, once."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._live or not size:
            return
        index = len(self.log.allocations)
        phase = "recompute" if self.phase == "backward" and self.stack else self.phase
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.log.allocations.append(Allocation(size, category, phase, module, operator, tuple(tensor.shape), dtype, block))
        self._event(index, block)

        def gone(_reference: Any) -> None:
            if self._live.get(key, (-1, None))[0] == index:
                del self._live[key]
                self._event(~index, self.log.allocations[index].block if self._of_all else self._block)

        self._live[key] = (index, weakref.ref(storage, gone))

    def relabel(self, tensor: torch.Tensor, category: str, operator: str = "", module: str = "") -> None:
        """Say what a storage has turned out to be: a parameter, a gradient, an optimizer's state."""
        if (found := self.allocation_of(tensor)) is not None:
            found.category, found.operator = category, operator or found.operator
            if module:
                found.module, found.block = module, self.block_of(module)

    def forget(self, tensor: torch.Tensor) -> None:
        """Take a storage out of the log: it is in host memory on a real machine."""
        key = tensor.untyped_storage()._cdata
        if key in self._live:
            index = self._live.pop(key)[0]
            self.log.allocations[index].bytes = 0

    def resized(self, tensor: torch.Tensor, category: str, operator: str, module: str) -> None:
        """Book that a storage got its bytes or lost them, which no operator shows."""
        block = self._place()[1]
        if tensor.untyped_storage().nbytes():
            self.book(tensor, category, operator, module, block)
            self.relabel(tensor, category, operator, module)
        elif known := self._live.pop(tensor.untyped_storage()._cdata, None):
            self._event(~known[0], block)

    def brief(self, items: Iterable[tuple[str, int]], category: str, module: str, block: int | None) -> None:
        """Book what lives only inside one operator: born and dead at once, after the operator's result."""
        first = len(self.log.allocations)
        phase = "recompute" if self.phase == "backward" and self.stack else self.phase
        for name, size in items:
            self._event(len(self.log.allocations), block)
            self.log.allocations.append(Allocation(size, category, phase, module, name, block=block))
        for index in range(first, len(self.log.allocations)):
            self._event(~index, block)

    def permanent(self, name: str, size: int) -> None:
        """Book what stays until the process ends, once: a library's workspace."""
        if name not in self._workspaces:
            self._workspaces.add(name)
            self._event(len(self.log.allocations), self._block)
            self.log.allocations.append(Allocation(size, "workspace", self.phase, "", name))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and isinstance(args[0], FakeTensor):  # two of three calls, each as dear as an operator
            return args[0].fake_device
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a wrapper (DTensor): its local tensors come by themselves
        if (
            func is _ADD
            and self.phase == "backward"
            and not torch.is_grad_enabled()
            and "accumulate_in_place" in self._behaviours
        ):
            for tensor in args:  # the engine's own sums are the only ones
                if torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) == _ONE_TENSOR:
                    return tensor
        result = func(*args, **(kwargs or {}))
        name = func.__name__
        self._of_all = self.phase == "optimizer" and name.startswith(("_foreach", "_fused"))
        module, block = place = self._place()
        if self.phase == "forward":
            self._nodes.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
        elif self.stack:
            self._recomputed[torch._C._autograd._get_sequence_nr() - 1] = place
        for outer, output in enumerate(result if isinstance(result, tuple | list) else (result,)):
            for inner, tensor in enumerate(output if isinstance(output, tuple | list) else (output,)):
                if isinstance(tensor, FakeTensor) and tensor.device.type == "cpu":
                    if self.phase == "optimizer":
                        block = self._block_of_parameter(args, outer + inner)
                    self.book(tensor, self._category(name, args, tensor), name.removesuffix(".default"), module, block)
        if workspace := self._behaviours.workspace(name):
            self.permanent(f"cuBLAS workspace ({'backward' if self.phase == 'backward' else 'forward'} thread)", workspace)
        if hidden := self._behaviours.temporaries(name, args, kwargs or {}):
            self.brief(hidden, "temporaries", module, block)
        return result

    def _block_of_parameter(self, args: Any, number: int) -> int | None:
        """In the optimizer: the block of the tensor that an operator works on; foreach operators get a list of them.

        What is made without a tensor (torch.zeros), or from a temporary, belongs to the parameter before it.
        """
        first = args[0] if args else None
        if isinstance(first, tuple | list):
            first = first[number] if number < len(first) else None
        if isinstance(first, torch.Tensor):
            found = self.allocation_of(first)
            if self._of_all or found is None or found.category != "temporaries":
                self._block = None if found is None else found.block
        return self._block

    def _category(self, name: str, args: Any, tensor: torch.Tensor) -> str:
        category = _CATEGORY.get("recompute" if self.stack else self.phase, "temporaries")
        if name == "_to_copy.default" and isinstance(args[0], torch.Tensor):
            source = self.allocation_of(args[0])
            if source is not None and source.category in ("weights", "adapters"):
                return "temporaries"
        if self.phase in ("forward", "backward") and self.vocabulary_elements:
            return "logits" if math.prod(tensor.shape) == self.vocabulary_elements else category
        return category
