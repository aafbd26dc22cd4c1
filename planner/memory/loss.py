"""Logits and the loss: what the output head and cross-entropy hold at the end of forward and at the start of backward."""

from typing import Any, NamedTuple

from planner.job import Job
from planner.memory.widths import Widths

__all__ = ["LossMemory", "loss_memory"]

CHUNK_TOKENS = 1024  # rows of logits alive at once in chunked losses. Source: torchtune CEWithChunkedOutputLoss, 8 chunks

_PLAIN = "transformers/loss/loss_utils.py, ForCausalLMLoss: logits.float(), log_softmax (fp32, kept), nll_loss"
_CHUNKED = "torchtune CEWithChunkedOutputLoss: 16-bit logits whole, fp32 only for one chunk"
_FUSED = "Hsu et al. 2024, arXiv:2410.10989, sec. 3.2 (Liger): logits of one chunk, the hidden states' gradient made in forward"
_CCE = "Wijmans et al. 2024, arXiv:2411.09009: logits stay in on-chip memory"


class LossMemory(NamedTuple):
    """Bytes at the three moments of the head, beyond the blocks; each with its formula."""

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
    T, V, D, b = job.micro_batch_size * job.sequence_length, a.vocab_size, a.hidden_size, w.logits
    capped = b * T * V if a.final_logit_softcapping else 0
    if job.loss == "plain":
        fp32 = 4 if b < 4 else 0
        forward = T * V * (b + fp32 + 4) + capped
        kept = b if job.keep_outputs else 0
        return LossMemory(
            forward, f"T V x ({b} + {fp32} + 4)", T * V * (12 + kept) + capped, f"T V x (4 + 4 + 4 + {kept})", _PLAIN
        )
    if job.loss == "chunked":
        chunk = V * CHUNK_TOKENS
        return LossMemory(
            T * V * b + capped + chunk * 8,
            "T V b + 1024 V x 8",
            2 * T * V * b + capped + chunk * 12,
            "2 T V b + 1024 V x 12",
            _CHUNKED,
        )
    if job.loss == "liger":
        # Chunks are chosen so that one chunk of logits is about as large as the hidden states.
        chunk = T * D * (b + 4 + 4) + V * D * 4 * (job.adapter is None)
        return LossMemory(chunk, "T D (b + 8) + 4 V D where the head is trained", T * D * b, "T D b", _FUSED)
    return LossMemory(T * 8, "T x 8 (log-sum-exp and loss)", T * D * 4, "T D x 4", _CCE)
