"""What stays on the card for the whole run: weights, scales, adapters, optimizer states, the batch; and the gradients' size."""

from collections.abc import Iterator
from typing import Any

from planner.job import Job
from planner.memory.lines import RESIDENT, Line, choose
from planner.memory.widths import Widths
from planner.precision import quantization_state_bytes, quantized_weight_bytes

PAGED_ELEMENTS = 100_000  # Source: bitsandbytes/optim/optimizer.py, get_state_buffer: smaller states are not paged

__all__ = ["resident_lines", "state_bytes", "trained_bytes", "trained_formula", "weight_lines"]

_COUNT = "parameter count x bytes of its dtype; tied embeddings count once"
_QLORA = "Dettmers et al. 2023, arXiv:2305.14314, sec. 3; bitsandbytes replaces nn.Linear inside the blocks only"
_KBIT = "peft/utils/other.py, prepare_model_for_kbit_training: 16-bit parameters that are not quantised become fp32"
_FUSED = "transformers 5 keeps routed experts as 3-D parameters: no nn.Linear for bitsandbytes to replace; k-bit preparation makes them fp32"
_ROTARY = "transformers until 4.40, MistralRotaryEmbedding: cosine and sine of every position in each layer"
_PEFT_DTYPE = "peft/tuners/tuners_utils.py, cast_adapter_dtype: fp32 for adapters of a 16-bit base"


def trained_bytes(job: Job, w: Widths) -> Any:
    """The trained parameters, and so all their gradients, each in its own dtype: copied modules keep that of the base."""
    if job.adapter is None:
        return w.weights * job.trained_params
    return w.adapter * (job.trained_params - job.copied_params) + w.vectors * job.copied_params


def trained_formula(job: Job, w: Widths) -> str:
    """`trained_bytes` in letters."""
    copies = f" + P_copied x {w.vectors}" if job.copied_params else ""
    return f"P_t x {w.weights if job.adapter is None else w.adapter}{copies}"


def state_bytes(job: Job, w: Widths, *, on_card: bool = True) -> Any:
    """The optimizer's states; those that are paged count only where they stay on the card, or all of them."""
    row, tensors = job.optimizer_row, job.trained_tensors
    if row.factored:  # fp32 sums per row and per column; a vector keeps a full state
        return sum(
            4 * t.copies * (t.rows if isinstance(t.columns, int) and t.columns == 1 else t.rows + t.columns) for t in tensors
        )
    if row.state_bytes is None:
        return row.states * trained_bytes(job, w)

    def of_tensor(elements: Any) -> Any:
        # Larger paged states are outside PyTorch's allocator and move to the host when the card is full; their scales never do.
        here = choose(elements < PAGED_ELEMENTS, 1, 0) if row.paged and on_card else 1
        return choose(elements < 4096, 4, 4 / 256 + here) if row.state_bytes == 1 else 4 * here

    return row.states * sum(t.params * of_tensor(t.elements) for t in tensors)


def _state_formula(job: Job, w: Widths) -> str:
    row = job.optimizer_row
    if row.factored:
        return "4 x rows and columns of each tensor"
    if row.paged:
        return "what is not paged: tensors under 100,000 elements, and scales"
    if row.state_bytes == 1:
        return f"{row.states} x (P_t + P_copied) x (1 + 4/256), and 4 bytes in tensors under 4096 elements"
    return (
        f"{row.states} x ({trained_formula(job, w)})"
        if row.state_bytes is None
        else f"{row.states} x (P_t + P_copied) x {row.state_bytes}"
    )


def weight_lines(job: Job, vectors: int, instant: str) -> Iterator[Line]:
    """The base model's weights, with `vectors` bytes for what is not quantised."""
    a, q = job.architecture, job.quantization
    stack = job.stack_row
    quantized, head = 0, a.embedding_params if stack.quantizes_head and q != "none" else 0
    if q != "none":
        quantized, rows = a.linear_params(experts=job.experts_as_linears)
        quantized, rows = quantized + head, rows + (a.vocab_size if head else 0)
        packed = "P_q x 1" if q == "int8" else "P_q / 2"
        scales = {"int8": "4 x output rows", "gptq": "P_q / 128 x 2.5"}.get(q, "P_q / 64 x (1 + 4/256)")
        scales = scales if job.double_quant or q in ("int8", "gptq") else "P_q / 64 x 4"
        yield Line("quantised weights", "weights", instant, quantized_weight_bytes(quantized, q), packed, _QLORA)
        state = quantization_state_bytes(quantized, rows, q, double_quant=job.double_quant)
        yield Line("quantisation scales", "quantization_state", instant, state, scales, _QLORA)
    source = _KBIT if q != "none" and vectors == 4 else _COUNT
    untied = a.embedding_params if stack.untied_head and a.tie_word_embeddings else 0
    outside = a.embedding_params + a.head_params + a.other_params + untied - head
    formula = (
        f"P_e x {vectors}"
        if not head and not untied
        else f"(P_e{' + P_head' if untied else ''}{' - P_head' if head else ''}) x {vectors}"
    )
    yield Line("embeddings and head", "weights", instant, vectors * outside, formula, source)
    name = "block weights" if q == "none" else "weights not quantised"
    fused = 0 if q == "none" or job.experts_as_linears else a.expert_params
    yield Line(
        name,
        "weights",
        instant,
        vectors * (a.block_params - quantized + head - fused),
        f"(P - P_e - P_q{' - P_experts' if fused else ''}) x {vectors}",
        source,
    )
    if fused:
        yield Line("fused experts, not quantised", "weights", instant, vectors * fused, f"P_experts x {vectors}", _FUSED)


def resident_lines(job: Job, w: Widths) -> Iterator[Line]:
    """Lines alive at every instant of a step, from the second step on (Adam's states appear at the first `step()`)."""
    yield from weight_lines(job, w.vectors, RESIDENT)
    if job.adapter is not None:
        what = (type(job.adapter).__doc__ or "").partition("\n")[0]
        source = f"{what} {_PEFT_DTYPE}"
        yield Line("adapter parameters", "adapters", RESIDENT, trained_bytes(job, w), trained_formula(job, w), source)
    row = job.optimizer_row
    if row.states or row.factored:
        yield Line("optimizer states", "optimizer_states", RESIDENT, state_bytes(job, w), _state_formula(job, w), row.source)
    a = job.architecture
    if job.transformers == "4.31" and a.rotary and not job.stack_row.own_models:
        size = 2 * w.compute * a.num_hidden_layers * a.max_position_embeddings * a.head_dim
        formula = f"2 L A x longest sequence x {w.compute}"
        yield Line("rotary tables of all layers", "workspace", RESIDENT, size, formula, _ROTARY)
    batch = 24 * job.micro_batch_size * job.length
    yield Line("batch", "workspace", RESIDENT, batch, "T x 3 x 8", "transformers data collators: ids, labels and mask in int64")
