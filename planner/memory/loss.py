"""Logits and the loss: what the output head and cross-entropy hold at the end of forward and at the start of backward."""

from typing import Any, NamedTuple

from planner.job import Job
from planner.memory.widths import Widths

__all__ = ["LossMemory", "loss_memory"]

_PLAIN = "transformers/loss/loss_utils.py, ForCausalLMLoss: logits.float(), log_softmax (fp32, kept), nll_loss"
_CHUNKED = "torchtune CEWithChunkedOutputLoss: 16-bit logits whole, fp32 only for one of eight chunks"
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
    gradients. The trainer has let go of the model's output by then; a loop that keeps it pays b T V more.
    """
    a = job.architecture
    T, V, D, b = job.micro_batch_size * job.length, a.vocab_size, a.hidden_size, w.logits
    capped = b * T * V if a.final_logit_softcapping else 0  # the soft cap's tanh
    plus = f" + {b}" if a.final_logit_softcapping else ""
    if job.loss == "plain":
        fp32 = 4 if b < 4 else 0
        forward = T * V * (b + fp32 + 4) + capped
        kept = b if job.keep_outputs else 0
        backward = T * V * (12 + kept) + capped
        return LossMemory(forward, f"T V x ({b}{plus} + {fp32} + 4)", backward, f"T V x (4 + 4 + 4 + {kept}{plus})", _PLAIN)
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
