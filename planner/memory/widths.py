"""Bytes per element in each place of a step, and the attention kernel: what precision, autocast and preparation decide."""

from typing import NamedTuple

from planner.job import Job
from planner.memory.lines import maximum
from planner.stacks import FORWARD_NOT_UPCAST

__all__ = ["Kernel", "Widths", "attention_kernel", "in_16_bit", "widths"]


class Widths(NamedTuple):
    """Bytes per element; the names follow the forward pass."""

    weights: int  # linear weights that are not quantised
    vectors: int  # norms, embeddings and output head
    residual: int  # the hidden states between blocks
    normed: int  # what a norm hands on
    linear: int  # what a block's linear layer gives out
    attention: int  # queries, keys and values inside the attention kernel
    logits: int  # what the output head gives out
    compute: int  # inside matrix multiplications
    adapter: int  # parameters of the adapter
    autocast: bool
    cross_entropy: int  # of what the loss reads

    @property
    def adapted(self) -> int:
        """What an adapter computes in: autocast's 16 bit, else its parameters' own dtype."""
        return self.compute if self.autocast else self.adapter

    @property
    def routed(self) -> int:
        """Inside routed experts: autocast's 16 bit, else the dtype of what comes in."""
        return self.compute if self.autocast else self.normed


def widths(job: Job) -> Widths:
    """The rules, one per line.

    Source: torch.amp documentation (lists of autocast operators); bitsandbytes/nn/modules.py (Linear4bit.forward gives its
    result the input's dtype); peft/tuners/tuners_utils.py (_move_adapter_to_device_of_base_layer), peft/utils/other.py
    (prepare_model_for_kbit_training); transformers modeling files (RMSNorm).
    """
    p, a = job.numbers, job.architecture
    weights = p.trained_bytes if job.adapter is None else p.frozen_bytes
    quantized = job.quantization in (
        "nf4",
        "fp4",
        "int8",
    )  # by bitsandbytes; a GPTQ layer gives 16 bit, and PEFT upcasts nothing there
    stack = job.stack_row
    prepared = quantized and job.kbit_preparation and not stack.own_models
    # TRL casts what is not a norm back, but the norms' fp32 weights keep the hidden states in fp32.
    cast_back = prepared and stack.casts_qlora_to_16_bit and job.quantization != "int8" and job.precision == "bf16-mixed"
    fp32_qlora = job.quantization in ("nf4", "fp4") and stack.qlora_in_fp32
    prepared = prepared or fp32_qlora
    vectors = 4 if prepared and not cast_back else weights
    # A quantised layer's result has the dtype of its input, which layer_norm makes fp32, and DoRA's fp32 result is added to it.
    wide = job.method == "dora" or a.norm == "layernorm"
    stream = 4 if prepared or (quantized and p.autocast and wide) else vectors
    normed = 4 if a.norm == "layernorm" and p.autocast else stream
    linear = normed if quantized else p.compute_bytes
    # An adapter takes its base layer's dtype, of which a 4-bit one has none to give.
    takes_dtype = job.quantization == "none" and job.method not in ("prefix", "prompt", "p-tuning")
    in_base_dtype = stack.adapters_in_base_dtype or cast_back or (takes_dtype and not job.autocast_adapter_dtype)
    logits = p.compute_bytes if p.autocast else vectors
    late = (
        job.transformers != "5" and a.model_type in FORWARD_NOT_UPCAST
    )  # left to cross-entropy, which autocast alone makes fp32
    return Widths(
        weights=weights,
        vectors=vectors,
        residual=stream,
        normed=normed,
        linear=linear,
        attention=p.compute_bytes if p.autocast or job.attention_used == "flash" else linear,  # flash casts fp32 down
        logits=logits,
        compute=p.compute_bytes,
        adapter=weights if in_base_dtype and not fp32_qlora else 4,
        autocast=p.autocast,
        cross_entropy=4 if stack.logits_in_fp32 and (p.autocast or not late) else logits,
    )


def in_16_bit(job: Job, w: Widths) -> tuple[Job, Widths]:
    """The step as FSDP's mixed precision and DeepSpeed run it: parameters cast to 16 bit as a whole, and no autocast."""
    if not w.autocast:
        return job, w
    run = job.model_copy(update={"precision": job.precision.removesuffix("-mixed"), "kbit_preparation": False})
    return run, widths(run)._replace(adapter=w.compute, cross_entropy=w.cross_entropy)


class Kernel(NamedTuple):
    """Which attention runs: `eager` holds all scores, `flash` and `efficient` do not."""

    name: str
    scores: bool
    expanded: bool  # keys and values are copied to every query head
    masked: bool = False  # a full mask is made for every layer


def attention_kernel(job: Job, w: Widths, compute_capability: tuple[int, int] | None) -> Kernel:
    """What `attn_implementation` comes to on a card; None stands for Ampere or newer.

    sdpa takes the flash kernel for 16-bit inputs of at most 256 features per head, without a mask, from compute capability
    8.0 on; else the memory-efficient one, which needs keys and values copied to every query head.
    A sliding window that the rows reach is such a mask, on all layers here; of many lengths the longest decides.
    Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp; on sm_75 as measured by the fitcheck archive (2025-09);
    transformers/masking_utils.py (sliding_window_causal_mask_function, _ignore_causal_mask_sdpa).
    """
    a, asked = job.architecture, job.attention_used
    grouped = a.num_key_value_heads < a.num_attention_heads
    if asked == "eager":
        return Kernel("eager", scores=True, expanded=grouped)
    reached = a.sliding_window is not None and maximum(job.length) >= a.sliding_window
    masked = not job.packing or job.method == "prefix" or reached  # virtual keys have no causal shape
    fits = (
        w.attention == 2
        and a.head_dim <= 256
        and a.value_head_dim == a.head_dim
        and not masked
        and (compute_capability or (8, 0)) >= (8, 0)
    )
    if asked == "flash" or fits:
        if job.stack_row.fused_projection:
            return Kernel("flash", scores=False, expanded=grouped)
        # Mistral and its kin copied keys and values to every query head until 4.47, Llama never did before this kernel.
        copied = asked == "flash" and job.transformers in ("4.31", "4.41") and a.model_type in ("mistral", "mixtral", "qwen2")
        return Kernel("flash", scores=False, expanded=grouped and copied and not job.stack_row.own_models)
    return Kernel("efficient", scores=False, expanded=grouped, masked=masked)
