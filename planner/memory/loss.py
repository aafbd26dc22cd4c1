"""Logits and the loss: what the output head and cross-entropy hold at the end of forward and at the start of backward."""

from typing import Any, NamedTuple

from planner.job import Job
from planner.memory.widths import Widths

__all__ = ["LossMemory", "loss_memory"]

_PLAIN = "transformers/loss/loss_utils.py, ForCausalLMLoss: logits.float(), log_softmax (fp32, kept), nll_loss"
_TRITON = "unsloth/kernels/cross_entropy_loss.py: one fp32 log-sum-exp per token is kept, the gradient is written over the logits"
_CHUNKED = "torchtune CEWithChunkedOutputLoss: 16-bit logits whole, fp32 only for one of eight chunks"
_IN_CHUNKS = "litgpt/utils.py, chunked_cross_entropy: chunks of 128 tokens, of which each keeps its log_softmax"
_FUSED = "Hsu et al. 2024, arXiv:2410.10989, sec. 3.2 (Liger): logits of one chunk, the hidden states' gradient made in forward"
_CCE = "Wijmans et al. 2024, arXiv:2411.09009: logits stay in on-chip memory"


class LossMemory(NamedTuple):
    """Bytes of the head at the end of forward and at the start of backward, each with its formula."""

    forward: Any
    forward_formula: str
    backward: Any
    backward_formula: str
    source: str


def loss_memory(job: Job, w: Widths) -> LossMemory:
    """Bytes of logits and loss buffers for T = B S tokens over a vocabulary of V.

    Plain: 16-bit logits, their fp32 copy and fp32 log-probabilities in forward; in backward the log-probabilities and two fp32
    gradients. The trainer has let go of the model's output by then; a loop that keeps it pays b T V more. transformers 4 shifts the
    logits against the labels, one more copy of them.
    """
    a, stack = job.architecture, job.stack_row
    T, V, D, b = job.micro_batch_size * job.length, a.vocab_size, a.hidden_size, w.logits
    capped = b * T * V if a.final_logit_softcapping else 0  # the soft cap's tanh
    plus = f" + {b}" if a.final_logit_softcapping else ""
    if stack.head_in_chunks and job.loss in ("plain", "chunked"):
        return _in_chunks(job, T * V, b, capped)
    if job.loss in ("plain", "fused-ce"):
        wide = w.cross_entropy
        fp32 = wide if wide != b else 0
        shifts = stack.own_models or job.transformers != "5"
        copy = wide if shifts else 0
        first = (
            0 if shifts and (stack.own_models or job.transformers != "4.46") and fp32 else b
        )  # 16-bit logits, gone once fp32 is made
        kept = wide if job.loss == "plain" else 0
        extra = (
            b * T * D if job.transformers == "4.46" and not stack.own_models else 0
        )  # the head's input, which forward still holds
        held = b if job.keep_outputs or stack.holds_logits else 0
        # The gradient with respect to what cross-entropy read; the Triton kernel writes it in place, and the 16-bit one follows.
        made = 3 * wide if job.loss == "plain" else wide + (copy or b)
        return LossMemory(
            T * V * (first + fp32 + copy + kept) + capped + extra,
            f"T V x ({first}{plus} + {fp32} + {copy} + {kept}){f' + T D x {b}' if extra else ''}",
            T * V * (made + held) + capped, f"T V x ({made} + {held}{plus})", _PLAIN if job.loss == "plain" else _TRITON,
        )  # fmt: skip
    if job.loss == "chunked":
        forward, backward = T * V * (b + 1) + capped, T * V * (2 * b + 1.5) + capped
        return LossMemory(forward, f"T V x ({b}{plus} + 8/8)", backward, f"T V x (2 x {b}{plus} + 12/8)", _CHUNKED)
    if job.loss == "liger":
        # Chunks are chosen so that one chunk of logits is about as large as the hidden states.
        head = 4 * V * D if job.trains_head else 0
        return LossMemory(
            T * D * (b + 8) + head, f"T D x ({b} + 8){' + V D x 4' if head else ''}", T * D * b, f"T D x {b}", _FUSED
        )
    return LossMemory(T * 8, "T x 8 (log-sum-exp and loss)", T * D * 4, "T D x 4", _CCE)


def _in_chunks(job: Job, logits: Any, b: int, capped: Any) -> LossMemory:
    """LitGPT's: whole logits that the loop holds, and a log_softmax per chunk. Full fine-tuning shifts and copies them first.

    In backward the chunks' gradients are put together into one of the whole, which a slice's backward then copies.
    """
    forward, backward = (2, 2) if job.adapter is not None else (3, 4)
    return LossMemory(
        forward * b * logits + capped,
        f"T V x {forward} x {b}",
        backward * b * logits + capped,
        f"T V x {backward} x {b}",
        _IN_CHUNKS,
    )
