"""What a model is made of: parameters as tensors, linear layers, and blocks of them."""

from typing import Any, NamedTuple

__all__ = ["Block", "Linear", "Tensor"]


class Tensor(NamedTuple):
    """`copies` equal parameters of one shape; a vector has one column. Sizes may be arrays."""

    copies: int
    rows: Any
    columns: Any = 1

    @property
    def elements(self) -> Any:
        """Elements of one of them."""
        return self.rows * self.columns

    @property
    def params(self) -> Any:
        """Elements of all of them."""
        return self.copies * self.rows * self.columns


class Linear(NamedTuple):
    """One matrix multiplication of a block, by the name that PEFT's `target_modules` uses for it."""

    name: str
    in_features: int
    out_features: int
    bias: bool = False

    @property
    def params(self) -> int:
        """Weights and bias."""
        return self.in_features * self.out_features + (self.out_features if self.bias else 0)


class Block(NamedTuple):
    """`num_blocks` equal transformer blocks; `attention` and `mlp` in the order of execution."""

    num_blocks: int
    attention: tuple[Linear, ...]
    mlp: tuple[Linear, ...]  # the dense MLP, or the shared experts of a mixture
    experts: tuple[Linear, ...]  # the linears of ONE routed expert; empty in a dense block
    num_experts: int
    experts_adapted: bool
    gate: tuple[Linear, ...]  # the shared expert's gate, a linear of one output
    router_params: int
    norm_params: int  # norms and other vectors (attention sinks)

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Linear layers that are modules of their own, routed experts apart."""
        return self.attention + self.mlp + self.gate

    @property
    def expert_params(self) -> int:
        """Parameters of all routed experts of one block."""
        return self.num_experts * sum(linear.params for linear in self.experts)

    @property
    def largest_fused_params(self) -> int:
        """Parameters of the larger of the two tensors in which transformers 5 keeps all routed experts: gate with up, and down."""
        return self.num_experts * sum(linear.params for linear in self.experts[:-1])

    @property
    def params(self) -> int:
        """Parameters of one block."""
        return sum(linear.params for linear in self.linears) + self.expert_params + self.router_params + self.norm_params
