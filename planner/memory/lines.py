"""The vocabulary of a memory breakdown: lines, components, instants; and the two operations that differ for arrays."""

from typing import Any, NamedTuple

__all__ = ["COMPONENTS", "INSTANTS", "RESIDENT", "Line", "choose", "largest", "maximum"]

# In the order in which a bar stacks them.
COMPONENTS = (
    "weights",
    "quantization_state",
    "adapters",
    "gradients",
    "optimizer_states",
    "activations",
    "logits",
    "temporaries",
    "workspace",
)
# In the order in which a run passes them; `resident` lines are alive at all of them but `load`.
INSTANTS = ("load", "forward", "loss", "backward_start", "backward_end", "optimizer", "evaluation", "save")
RESIDENT = "resident"


class Line(NamedTuple):
    """One named part of the memory alive at one instant (or at all of a step's: `resident`).

    `bytes` is a number, or an array where the job's numbers are arrays. `formula` is in the letters of the breakdown's
    `letters`, and `source` says where it comes from.
    """

    name: str
    component: str
    instant: str
    bytes: Any
    formula: str
    source: str


def largest(first: Any, *others: Any) -> Any:
    """The element-wise maximum of scalars or arrays."""
    result = first
    for other in others:
        if isinstance(result, int | float) and isinstance(other, int | float):
            result = max(result, other)
        else:
            import numpy as np

            result = np.maximum(result, other)
    return result


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`; the condition may be an array."""
    if condition is True or condition is False:
        return yes if condition else no
    import numpy as np

    return np.where(condition, yes, no)


def maximum(value: Any) -> float:
    """The largest of an array, or the number itself."""
    return float(value if isinstance(value, int | float) else value.max())
