"""Stand-ins for losses whose kernels cannot run on fake tensors: the tensors that they make, with their shapes and lifetimes.

Each replaces the output head and the cross-entropy of the model; no value is computed.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from planner.job import Job

__all__ = ["put_loss"]


def put_loss(model: Any, job: Job) -> None:
    """Give the model the job's loss: its head hands the hidden states on, and the loss takes them from there."""
    shifts = job.transformers != "5"
    if job.loss == "plain" and not shifts:
        return
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = base.get_output_embeddings()
    if job.loss in ("plain", "fused-ce"):
        if shifts and job.transformers != "4.46":  # fp32 as soon as the head has run
            plain = head.forward
            head.forward = lambda hidden: plain(hidden).float()
        kind = _plain if job.loss == "plain" else _Triton.apply

        def loss_function(logits: Any, labels: Any, *_: Any, **__: Any) -> Any:
            wide = logits.float()  # which the library's own variable holds while the loss is computed
            return kind(wide[..., :-1, :].contiguous() if shifts else wide)

        base.loss_function = loss_function
        return
    if job.loss == "chunked":
        base.loss_function = lambda logits, labels, *_, **__: _Chunked.apply(logits)
        return
    kernel = {"liger": _liger, "cut-ce": _cut}[job.loss]
    head.forward = lambda hidden: hidden
    base.loss_function = lambda logits, labels, *_, **__: _Fused.apply(logits, _weight(head), kernel)


def _weight(head: Any) -> Any:
    """The head's matrix; of a copied head (modules_to_save) the copy, which has the gradient."""
    return max((p for p in head.parameters() if p.ndim == 2), key=lambda p: p.requires_grad)


def _compute_dtype(tensor: Any) -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else tensor.dtype


def _liger(hidden: Any, weight: Any) -> tuple[Any, Any]:
    """Gradients made in forward, one chunk of logits at a time. Source: liger_kernel/ops/fused_linear_cross_entropy.py."""
    T, D = hidden.shape
    V = weight.size(0)
    rows = 2 ** math.ceil(math.log2(max(1, math.ceil(T / math.ceil(V / D)))))
    to_hidden = torch.zeros_like(hidden)
    to_weight = torch.zeros_like(weight) if weight.requires_grad else None
    losses = torch.zeros(T, dtype=torch.float32)
    for start in range(0, T, rows):
        chunk = hidden[start : start + rows]
        logits = chunk @ weight.t()
        to_hidden[start : start + rows] = logits @ weight
        if to_weight is not None:
            to_weight += logits.t() @ chunk
        del logits
    del losses
    return to_hidden, to_weight


def _cut(hidden: Any, weight: Any) -> tuple[Any, Any]:
    """Two vectors in forward, gradients in backward. Source: Wijmans et al. 2024, arXiv:2411.09009, algorithms 1 to 3."""
    return torch.empty(hidden.size(0), 2, dtype=torch.float32), None


class _Fused(torch.autograd.Function):
    """Linear layer and cross-entropy in one: `kernel` says what is left of forward for backward."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, kernel: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
        ctx.shape, ctx.dtype = hidden.shape, hidden.dtype
        dtype = _compute_dtype(hidden)
        rows, wide = hidden.reshape(-1, hidden.size(-1)).to(dtype), weight.to(dtype)
        ctx.cut = kernel is _cut
        kept, to_weight = kernel(rows, wide.requires_grad_(weight.requires_grad) if wide is not weight else weight)
        ctx.save_for_backward(kept, to_weight, *((rows, weight) if ctx.cut else ()))
        return torch.empty((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *_gradient: Any) -> Any:
        kept, to_weight, *inputs = ctx.saved_tensors
        if ctx.cut:
            rows, weight = inputs
            kept = torch.zeros_like(rows, dtype=torch.float32)
            to_weight = torch.zeros_like(weight) if weight.requires_grad else None
        return kept.to(ctx.dtype).view(ctx.shape), to_weight, None


def _plain(logits: Any) -> Any:
    rows = logits.view(-1, logits.size(-1))
    return torch.nn.functional.cross_entropy(rows, torch.zeros(rows.size(0), dtype=torch.int64))


class _Triton(torch.autograd.Function):
    """One log-sum-exp per token; the gradient is written over the logits. Source: unsloth/kernels/cross_entropy_loss.py."""

    @staticmethod
    def forward(ctx: Any, logits: Any) -> Any:
        rows = logits.numel() // logits.size(-1)
        ctx.save_for_backward(logits, torch.empty(rows, dtype=torch.float32))
        return torch.empty((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *_gradient: Any) -> Any:
        return ctx.saved_tensors[0]


class _Chunked(torch.autograd.Function):
    """Whole 16-bit logits, in fp32 one of eight chunks at a time. Source: torchtune/modules/loss/ce_chunked_output_loss.py."""

    @staticmethod
    def forward(ctx: Any, logits: Any) -> Any:
        ctx.save_for_backward(logits)
        for chunk in logits.view(-1, logits.size(-1)).chunk(8):
            torch.log_softmax(chunk.float(), -1)
        return torch.empty((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *_gradient: Any) -> Any:
        (logits,) = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        chunks = logits.view(-1, logits.size(-1)).chunk(8)
        for chunk, part in zip(chunks, gradient.view(-1, logits.size(-1)).chunk(8), strict=True):
            probabilities = torch.log_softmax(chunk.float(), -1)
            part.copy_(torch.empty_like(probabilities))
        return gradient
