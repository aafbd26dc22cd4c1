"""The adapter family of PEFT: what each trains, tensor by tensor. No adapter means full fine-tuning.

Each adapter is a small record: `targets(block)` says which linears of a block carry it, `tensors(architecture)` what it
trains. Numbers (`rank`, `num_virtual_tokens`, `bottleneck_size`) may be NumPy arrays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.architecture import Architecture
from planner.blocks import Block, Linear, Tensor
from planner.errors import InvalidJob, near_names

__all__ = [
    "ALL_LINEAR",
    "IA3",
    "Adapter",
    "BottleneckAdapter",
    "LoRA",
    "PTuning",
    "PrefixTuning",
    "PromptTuning",
    "check_targets",
]

ALL_LINEAR = "all-linear"


def check_targets(target_modules: tuple[str, ...], architecture: Architecture) -> None:
    """Raise InvalidJob where a name is no linear layer of this model."""
    known = architecture.linear_names()
    where = {"field": "target_modules", "known": ", ".join(known), "model": architecture.name}
    if not target_modules:
        raise InvalidJob("target_modules is empty; name some of {known}, or all-linear", **where)
    for name in target_modules:
        if name in known or target_modules == (ALL_LINEAR,):
            continue
        near = near_names(name, known, count=1)
        if near:
            template = "{model} has no linear layer {name!r}; did you mean {near!r}? (it has {known}, or all-linear)"
            raise InvalidJob(template, **where, name=name[:64], near=near[0])
        raise InvalidJob("{model} has no linear layer {name!r}; it has {known}, or all-linear", **where, name=name[:64])


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Common to all."""

    def targets(self, block: Block) -> tuple[Linear, ...]:
        """Linears of `block` that carry this adapter."""
        return ()

    def tensors(self, architecture: Architecture) -> Iterator[Tensor]:
        """The tensors that it trains."""
        raise NotImplementedError

    def params(self, architecture: Architecture) -> Any:
        """Parameters that it trains on the whole model."""
        return sum(tensor.params for tensor in self.tensors(architecture))


@dataclass(frozen=True, kw_only=True)
class LoRA(Adapter):
    """Low-rank matrices A [r, in] and B [out, r] beside a frozen linear; DoRA adds a magnitude per output.

    Source: Hu et al. 2021, arXiv:2106.09685, sec. 4.1; Liu et al. 2024, arXiv:2402.09353 (DoRA); peft/tuners/lora/layer.py.
    """

    rank: Any = 16
    target_modules: tuple[str, ...] = (ALL_LINEAR,)
    dropout: float = 0.0
    use_dora: bool = False
    experts_as_linears: bool = False  # transformers 4 kept routed experts as linears, 5 as fused 3-D parameters

    def targets(self, block: Block) -> tuple[Linear, ...]:
        """Linears with a pair of matrices; PEFT's all-linear leaves the output head out.

        Source: peft/utils/transformers_weight_conversion.py: where the experts are adapted, the MLP's names mean them alone.
        """
        experts_instead = block.experts_adapted and not self.experts_as_linears
        return tuple(x for x in block.linears if self._chosen(x) and not (experts_instead and x in block.mlp))

    def expert_targets(self, block: Block) -> tuple[Linear, ...]:
        """Linears of one routed expert that are adapted, as linears of their own or inside the fused parameter."""
        reached = self.experts_as_linears or block.experts_adapted
        return tuple(linear for linear in block.experts if reached and self._chosen(linear))

    def _chosen(self, linear: Linear) -> bool:
        return self.target_modules == (ALL_LINEAR,) or linear.name in self.target_modules

    def tensors(self, architecture: Architecture) -> Iterator[Tensor]:
        """A and B of every targeted linear."""
        for block in architecture.blocks:
            experts = self.expert_targets(block)
            separate = [(linear, block.num_experts) for linear in experts] if self.experts_as_linears else []
            for linear, times in [(linear, 1) for linear in self.targets(block)] + separate:
                yield Tensor(block.num_blocks * times, self.rank, linear.in_features)
                yield Tensor(block.num_blocks * times, linear.out_features, self.rank)
                if self.use_dora:
                    yield Tensor(block.num_blocks * times, linear.out_features)
            if experts and not self.experts_as_linears:
                if self.target_modules == (ALL_LINEAR,):  # the router too
                    yield Tensor(block.num_blocks, self.rank, architecture.hidden_size)
                    yield Tensor(block.num_blocks, block.num_experts, self.rank)
                # peft/tuners/lora/layer.py, ParamWrapper: gate and up are one parameter, adapted with both their ranks.
                *inputs, down = block.experts
                for fused in ([x for x in inputs if x in experts], [x for x in (down,) if x in experts]):
                    if fused:
                        rank = self.rank * block.num_experts * len(fused)
                        yield Tensor(block.num_blocks, rank, fused[0].in_features)
                        yield Tensor(
                            block.num_blocks, sum(x.out_features for x in (inputs if fused[0] is not down else (down,))), rank
                        )


@dataclass(frozen=True, kw_only=True)
class IA3(Adapter):
    """One vector per targeted linear: on the outputs of k and v, on the input of the MLP's last linear.

    Source: Liu et al. 2022, arXiv:2205.05638, sec. 3.3; peft/tuners/ia3/layer.py and peft/utils/constants.py (default targets).
    """

    def targets(self, block: Block) -> tuple[Linear, ...]:
        """k and v (or the fused projection), and the MLP's last linear."""
        *inputs, _output = block.attention
        return (*(inputs[-2:] if len(inputs) > 1 else inputs), *block.mlp[-1:])

    def layer_names(self, architecture: Architecture) -> tuple[list[str], list[str]]:
        """PEFT's target_modules and feedforward_modules, which it knows for some model types only."""
        names = dict.fromkeys(x.name for block in architecture.blocks for x in self.targets(block))
        last = {x.name for block in architecture.blocks for x in block.mlp[-1:]}
        return list(names), [name for name in names if name in last]

    def tensors(self, architecture: Architecture) -> Iterator[Tensor]:
        """`out` values for k and v, `in` values for the MLP's last linear."""
        for block in architecture.blocks:
            for linear in self.targets(block):
                yield Tensor(block.num_blocks, linear.in_features if linear in block.mlp[-1:] else linear.out_features)


@dataclass(frozen=True, kw_only=True)
class PrefixTuning(Adapter):
    """Trained keys and values of `num_virtual_tokens` positions in every layer.

    Source: Li & Liang 2021, arXiv:2101.00190; peft/tuners/prefix_tuning/model.py (without projection).
    """

    num_virtual_tokens: Any = 20

    def tensors(self, architecture: Architecture) -> Iterator[Tensor]:
        """One table: tokens x (layers x 2 x key/value features)."""
        yield Tensor(1, self.num_virtual_tokens, architecture.num_hidden_layers * 2 * architecture.key_value_size)


@dataclass(frozen=True, kw_only=True)
class PromptTuning(Adapter):
    """Trained embeddings of `num_virtual_tokens` tokens in front of the input.

    Source: Lester et al. 2021, arXiv:2104.08691; peft/tuners/prompt_tuning/model.py.
    """

    num_virtual_tokens: Any = 20

    def tensors(self, architecture: Architecture) -> Iterator[Tensor]:
        """One table: tokens x hidden size."""
        yield Tensor(1, self.num_virtual_tokens, architecture.hidden_size)


@dataclass(frozen=True, kw_only=True)
class PTuning(PromptTuning):
    """Prompt embeddings passed through a trained three-layer perceptron of the hidden width.

    Source: Liu et al. 2021, arXiv:2103.10385; peft/tuners/p_tuning/model.py (encoder type MLP).
    """

    def tensors(self, architecture: Architecture) -> Iterator[Tensor]:
        """The table of prompt tuning, and three linears D x D with bias."""
        yield from PromptTuning.tensors(self, architecture)
        yield Tensor(3, architecture.hidden_size, architecture.hidden_size)
        yield Tensor(3, architecture.hidden_size)


@dataclass(frozen=True, kw_only=True)
class BottleneckAdapter(Adapter):
    """A small perceptron D -> m -> D with a residual connection after attention and after the MLP.

    Source: Houlsby et al. 2019, arXiv:1902.00751, sec. 2.1.
    """

    bottleneck_size: Any = 64

    def tensors(self, architecture: Architecture) -> Iterator[Tensor]:
        """Two perceptrons per block: D x m and m x D with their biases."""
        D, m, count = architecture.hidden_size, self.bottleneck_size, 2 * architecture.num_hidden_layers
        yield from (Tensor(count, m, D), Tensor(count, D, m), Tensor(count, m), Tensor(count, D))
