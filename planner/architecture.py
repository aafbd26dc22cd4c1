"""What a decoder-only language model is made of: its shapes, its linear layers and its parameter counts."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from planner.blocks import Block, Linear, Tensor
from planner.errors import InvalidJob, first_problem

__all__ = ["Architecture", "Record"]

# Larger than any model that exists by a factor of about a hundred: a field beyond it is a mistyped file.
_MAX_WIDTH = 2**20
_MAX_VOCABULARY = 2**24
_MAX_POSITIONS = 2**27
_MAX_PARAMS = 1e14


class Record(BaseModel):
    """A frozen record that says what is wrong with its values in one sentence (InvalidJob)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise first_problem(error) from error


class Architecture(Record):
    """A decoder-only transformer as its config.json says, with the conventions of its family spelled out.

    Field names are those of config.json where it has one. `planner.families` makes it from a config.json.
    """

    name: str = Field(min_length=1, max_length=200)
    model_type: str = Field(min_length=1, max_length=64)
    hidden_size: PositiveInt = Field(le=_MAX_WIDTH)
    num_hidden_layers: PositiveInt = Field(le=4096)
    num_attention_heads: PositiveInt = Field(le=4096)
    num_key_value_heads: PositiveInt = Field(le=4096)
    head_dim: PositiveInt = Field(le=_MAX_WIDTH)
    intermediate_size: PositiveInt = Field(le=_MAX_WIDTH * 4)
    vocab_size: PositiveInt = Field(le=_MAX_VOCABULARY)
    max_position_embeddings: PositiveInt = Field(le=_MAX_POSITIONS)
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    torch_dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"

    # names of the linear layers, in the order of execution
    qkv_names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    out_name: str = "o_proj"
    mlp_names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    gated_mlp: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False

    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_bias: bool = False
    norms_per_block: int = Field(default=2, ge=1, le=4)
    norm_product_fp32: bool = False  # the norm's weight is multiplied in fp32, before the cast back (Gemma, OLMo 2)
    final_norm: bool = True
    qk_norm: Literal["none", "head", "full"] = "none"  # one weight per head dimension, or per projected feature
    rotary: bool = True  # positions turn queries and keys; off where they are learned or a slope on the scores (ALiBi)
    learned_positions: int = Field(default=0, ge=0, le=_MAX_POSITIONS)  # rows of the position table
    embedding_norm: bool = False
    embedding_size: int = Field(default=0, ge=0, le=_MAX_WIDTH)  # 0: the hidden size (OPT-350m projects 512 to 1024)
    parallel_block: bool = False  # attention and MLP read the same norm's output
    residual_dropout: float = Field(default=0.0, ge=0, lt=1)  # the model's own dropout, on in training
    attention_sinks: bool = False
    sliding_window: PositiveInt | None = Field(default=None, le=_MAX_POSITIONS)
    final_logit_softcapping: bool = False
    attn_logit_softcapping: bool = False
    logit_scale: bool = False  # logits are divided by a constant (Granite)

    # mixture of experts
    num_experts: int = Field(default=0, ge=0, le=4096)
    num_experts_per_tok: int = Field(default=0, ge=0, le=4096)
    moe_intermediate_size: int = Field(default=0, ge=0, le=_MAX_WIDTH)
    shared_expert_intermediate_size: int = Field(default=0, ge=0, le=_MAX_WIDTH)
    shared_expert_gate: bool = False
    first_k_dense_replace: int = Field(default=0, ge=0, le=4096)  # leading blocks with a dense MLP
    router_bias: bool = False
    expert_bias: bool = False
    experts_clamped: bool = False  # the experts' activation is written out with clamps (gpt-oss)
    experts_adapted: bool = False  # PEFT's all-linear reaches the fused experts and the router, in place of the MLP's linears

    # multi-head latent attention (DeepSeek)
    kv_lora_rank: int = Field(default=0, ge=0, le=_MAX_WIDTH)
    q_lora_rank: int = Field(default=0, ge=0, le=_MAX_WIDTH)
    qk_nope_head_dim: int = Field(default=0, ge=0, le=_MAX_WIDTH)
    qk_rope_head_dim: int = Field(default=0, ge=0, le=_MAX_WIDTH)
    v_head_dim: int = Field(default=0, ge=0, le=_MAX_WIDTH)

    config_json: str = Field(default="", repr=False)  # the configuration that it was made from, for the model's own class
    revision: str = ""  # commit of the Hub repository, where the config came from there
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> "Architecture":
        if self.num_attention_heads % self.num_key_value_heads:
            raise InvalidJob(
                "num_key_value_heads is {given}, which does not divide num_attention_heads ({heads})",
                field="num_key_value_heads", given=self.num_key_value_heads, heads=self.num_attention_heads,
            )  # fmt: skip
        if self.num_experts and not 0 < self.num_experts_per_tok <= self.num_experts:
            raise InvalidJob(
                "num_experts_per_tok is {given}; it must be between 1 and the number of experts ({experts})",
                field="num_experts_per_tok", given=self.num_experts_per_tok, experts=self.num_experts,
            )  # fmt: skip
        for field, needed in (("moe_intermediate_size", self.num_experts), ("v_head_dim", self.kv_lora_rank)):
            if needed and not getattr(self, field):
                raise InvalidJob("{name} is missing, and nothing can be planned without it", field=field, name=field)
        if self.num_params > _MAX_PARAMS:
            template = "these shapes make {params} parameters, more than any model has; check the sizes in config.json"
            raise InvalidJob(template, field="hidden_size", params=f"{self.num_params:.0e}")
        return self

    @property
    def attention_kernels(self) -> tuple[str, ...]:
        """What `attn_implementation` may be. Source: _supports_sdpa and _supports_flash_attn in transformers 5.24."""
        if self.model_type in ("mpt", "bloom"):
            return ("eager",)
        if self.attention_sinks:
            return ("eager",)  # flash needs a kernel from the Hub that knows sinks
        return ("eager", "flash") if self.attn_logit_softcapping else ("eager", "sdpa", "flash")

    # ---- shapes -------------------------------------------------------------------------------------------------

    @property
    def query_size(self) -> int:
        """Features of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Features of all key heads together (the same for values, latent attention apart)."""
        return self.num_key_value_heads * self.head_dim

    @property
    def value_head_dim(self) -> int:
        """Features of one value head; smaller than the query head's in latent attention."""
        return self.v_head_dim or self.head_dim

    @cached_property
    def _attention(self) -> tuple[Linear, ...]:
        D, H, bias = self.hidden_size, self.num_attention_heads, self.qkv_bias
        output = Linear(self.out_name, H * self.value_head_dim, D, self.out_bias)
        if self.kv_lora_rank:
            keys_values = (
                Linear("kv_a_proj_with_mqa", D, self.kv_lora_rank + self.qk_rope_head_dim, bias),
                Linear("kv_b_proj", self.kv_lora_rank, H * (self.qk_nope_head_dim + self.v_head_dim)),
            )
            if not self.q_lora_rank:
                return (Linear("q_proj", D, H * self.head_dim), *keys_values, output)
            queries = (
                Linear("q_a_proj", D, self.q_lora_rank, bias),
                Linear("q_b_proj", self.q_lora_rank, H * self.head_dim),
            )
            return (*queries, *keys_values, output)
        sizes = (self.query_size, self.key_value_size, self.key_value_size)
        if len(self.qkv_names) == 1:
            sizes = (sum(sizes),)  # type: ignore[assignment]
        return (*(Linear(n, D, size, bias) for n, size in zip(self.qkv_names, sizes, strict=True)), output)

    def _mlp(self, intermediate_size: int, bias: bool) -> tuple[Linear, ...]:
        """The MLP of one width: gate and up side by side or fused, then down; or two linears where it is ungated."""
        if not intermediate_size:
            return ()
        *inputs, down = self.mlp_names
        width = (1 + self.gated_mlp) * intermediate_size // len(inputs)
        return (
            *(Linear(name, self.hidden_size, width, bias) for name in inputs),
            Linear(down, intermediate_size, self.hidden_size, bias),
        )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The kinds of block, first ones first: dense ones, then mixtures of experts."""
        D = self.hidden_size
        norm_width = (1 + self.norm_bias) * D
        norms = self.norms_per_block * norm_width
        norms += self.num_attention_heads if self.attention_sinks else 0
        if self.qk_norm == "head":
            norms += 2 * self.head_dim
        elif self.qk_norm == "full":
            norms += self.query_size + self.key_value_size
        if self.kv_lora_rank:
            norms += self.kv_lora_rank + self.q_lora_rank
        num_dense = min(self.first_k_dense_replace, self.num_hidden_layers) if self.num_experts else self.num_hidden_layers
        num_sparse = self.num_hidden_layers - num_dense
        kinds = []
        if num_dense:
            mlp = self._mlp(self.intermediate_size, self.mlp_bias)
            kinds.append(Block(num_dense, self._attention, mlp, (), 0, self.experts_adapted, (), 0, norms))
        if num_sparse:
            router = self.num_experts * (D + self.router_bias)
            gate = (Linear("shared_expert_gate", D, 1),) if self.shared_expert_gate else ()
            shared = self._mlp(self.shared_expert_intermediate_size, bias=False)
            expert = self._mlp(self.moe_intermediate_size, self.expert_bias)
            kinds.append(
                Block(num_sparse, self._attention, shared, expert, self.num_experts, self.experts_adapted, gate, router, norms)
            )
        return tuple(kinds)

    # ---- counts -------------------------------------------------------------------------------------------------

    @cached_property
    def embedding_params(self) -> int:
        """Token embedding: vocabulary rows."""
        return self.vocab_size * (self.embedding_size or self.hidden_size)

    @cached_property
    def head_params(self) -> int:
        """Output head where it is a matrix of its own; 0 where it is the token embedding."""
        matrix = 0 if self.tie_word_embeddings else self.embedding_params
        return matrix + (self.vocab_size if self.lm_head_bias else 0)

    @cached_property
    def other_params(self) -> int:
        """Position table, embedding norm, final norm and embedding projections, outside the blocks."""
        norms = self.final_norm + self.embedding_norm
        projections = 2 * self.embedding_size * self.hidden_size
        return self.learned_positions * self.hidden_size + norms * (1 + self.norm_bias) * self.hidden_size + projections

    @cached_property
    def block_params(self) -> int:
        """Parameters of all blocks."""
        return sum(block.num_blocks * block.params for block in self.blocks)

    @cached_property
    def num_params(self) -> int:
        """Parameters of the model, tied embeddings counted once.

        Source: the classes of transformers, which tests/test_architecture.py builds on the meta device and counts.
        """
        return self.block_params + self.embedding_params + self.head_params + self.other_params

    @cached_property
    def active_params(self) -> int:
        """Parameters that one token passes through: of the routed experts only those it is sent to."""
        idle = sum(
            block.num_blocks * block.expert_params // block.num_experts * (block.num_experts - self.num_experts_per_tok)
            for block in self.blocks
            if block.num_experts
        )
        return self.num_params - idle

    @cached_property
    def largest_linear(self) -> int:
        """Weights of the largest linear layer inside the blocks (of one expert)."""
        return max(x.in_features * x.out_features for block in self.blocks for x in (*block.linears, *block.experts))

    def linear_params(self, *, experts: bool) -> tuple[int, int]:
        """Weights of all linear layers inside the blocks, and their output rows; with or without the routed experts'."""
        return self._linear_params[experts]

    @cached_property
    def _linear_params(self) -> tuple[tuple[int, int], tuple[int, int]]:
        weights = rows = expert_weights = expert_rows = 0
        for block in self.blocks:
            weights += block.num_blocks * sum(x.in_features * x.out_features for x in block.linears)
            rows += block.num_blocks * sum(x.out_features for x in block.linears)
            expert_weights += block.num_blocks * block.num_experts * sum(x.in_features * x.out_features for x in block.experts)
            expert_rows += block.num_blocks * block.num_experts * sum(x.out_features for x in block.experts)
        return (weights, rows), (weights + expert_weights, rows + expert_rows)

    @cached_property
    def expert_params(self) -> int:
        """Parameters of all routed experts."""
        return sum(block.num_blocks * block.expert_params for block in self.blocks)

    def tensors(self, last_blocks: int | None = None) -> Iterator[Tensor]:
        """The parameters as tensors; with `last_blocks`, only those of that many last blocks, norms as one vector each."""
        left = self.num_hidden_layers if last_blocks is None else last_blocks
        for block in reversed(self.blocks):
            count = min(left, block.num_blocks)
            left -= count
            for linear in block.linears:
                yield Tensor(count, linear.out_features, linear.in_features)
                if linear.bias:
                    yield Tensor(count, linear.out_features)
            for linear in block.experts:  # fused: one parameter for all experts
                yield Tensor(count, block.num_experts * linear.out_features, linear.in_features)
                if linear.bias:
                    yield Tensor(count, block.num_experts * linear.out_features)
            yield from (Tensor(count, block.router_params), Tensor(count, block.norm_params))
        if last_blocks is None:
            width = self.embedding_size or self.hidden_size
            yield Tensor(1 if self.tie_word_embeddings else 2, self.vocab_size, width)
            yield from (Tensor(1, self.vocab_size * self.lm_head_bias), Tensor(1, self.other_params))

    def linear_names(self) -> list[str]:
        """Names of the linear layers that an adapter can be put on, each once."""
        return list(dict.fromkeys(linear.name for linear in self._all_linears()))

    def _all_linears(self) -> Iterator[Linear]:
        for block in self.blocks:
            yield from block.linears
            yield from block.experts
