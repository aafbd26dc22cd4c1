"""Optimizers: what each keeps between steps and what it needs while it steps, one row per optimizer."""

from typing import NamedTuple

__all__ = ["OPTIMIZERS", "Optimizer"]


class Optimizer(NamedTuple):
    """Memory of one optimizer, per trained parameter of `p` bytes."""

    label: str
    states: int  # tensors of the parameter's shape kept between steps
    state_bytes: int | None  # bytes of one state element; None: those of the parameter
    paged: bool = False  # states live in unified memory and move to the host when the card is full
    factored: bool = False  # keeps row and column sums instead of a full state
    temporary_copies: float = 0.0  # whole-model temporaries of the parameter's dtype during the step
    own_temporaries: int = 0  # fp32 temporaries of one parameter's size, where parameters are updated one by one
    source: str = ""


_BLOCKWISE = "bitsandbytes/optim/optimizer.py (Optimizer2State): 8-bit states, one fp32 scale per 256, under 4096 elements 32-bit"
_PAGED = "bitsandbytes/optim/optimizer.py (get_paged): states in cudaMallocManaged memory"

OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": Optimizer(
        "AdamW", 2, None, temporary_copies=1.0, source="torch/optim/adamw.py, _multi_tensor_adamw (foreach, CUDA's default)"
    ),
    "adamw-fused": Optimizer("AdamW, fused", 2, None, source="torch/optim/adamw.py, _fused_adamw: one kernel, no temporary"),
    "adamw-8bit": Optimizer("AdamW, 8-bit", 2, 1, source=_BLOCKWISE),
    "paged-adamw": Optimizer("AdamW, paged", 2, 4, paged=True, source=_PAGED),
    "paged-adamw-8bit": Optimizer("AdamW, paged 8-bit", 2, 1, paged=True, source=f"{_PAGED}; {_BLOCKWISE}"),
    "adafactor": Optimizer(
        "Adafactor", 0, 4, factored=True, own_temporaries=2,
        source="transformers/optimization.py, Adafactor (no momentum): grad ** 2 and its sum with eps beside the last parameter's "
        "update; fp32 copies of a 16-bit parameter and its gradient",
    ),
    "lion": Optimizer("Lion", 1, 4, source="bitsandbytes/optim/lion.py: one fp32 state"),
    "lion-8bit": Optimizer("Lion, 8-bit", 1, 1, source=_BLOCKWISE),
    "sgd": Optimizer("SGD", 0, None, source="torch/optim/sgd.py, foreach without momentum: updates in place"),
    "sgd-momentum": Optimizer("SGD with momentum", 1, None, source="torch/optim/sgd.py: one momentum buffer"),
}  # fmt: skip
