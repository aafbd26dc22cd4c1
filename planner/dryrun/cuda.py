"""What CUDA does that a trace on the CPU does not show: one table, each row with its source, each to be switched off.

`temporaries` lists what kernels allocate and free inside one operator. `emulated` makes operators take the path that they take
on CUDA tensors while a trace runs, and leaves torch as it was.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch itself calls it so
from torch._subclasses import FakeTensorMode

__all__ = ["BEHAVIOURS", "Behaviours", "replaced"]

aten = torch.ops.aten
_SDP = "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"

# Name -> what it is and where that is from. `dry_run(job, without=...)` takes these names.
BEHAVIOURS: dict[str, str] = {
    "cublas_workspace": "aten/src/ATen/cuda/CublasHandlePool.cpp (getChosenWorkspaceSize): 4096:2:16:8 KiB = 8,519,680 B, 32 MiB on "
    "sm_90, per handle and stream; backward's thread has a handle of its own",
    "softmax_backward": "aten/src/ATen/native/cuda/SoftMax.cu (softmax_backward_cuda): grad * output is a tensor of its own; "
    "without it eager attention came out 8-17 % too low against measured T4 runs",
    "half_to_float": "aten/src/ATen/native/SoftMax.cpp (softmax, log_softmax): on CUDA an fp16 input with dtype=float32 is one kernel, "
    "without a cast copy; bf16 is cast first",
    "native_dropout": "aten/src/ATen/native/Dropout.cpp (is_fused_kernel_acceptable): on CUDA one kernel with a one-byte mask",
    "autocast": "aten/src/ATen/autocast_mode.h (AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE): operators that autocast runs in fp32 "
    "on CUDA and not on the CPU; torch.is_autocast_enabled() of no device means CUDA, and PEFT's bitsandbytes layers ask it whether to "
    "cast; the cache of cast weights is the same code on both",
    "sdpa": f"{_SDP} (use_flash_attention, use_mem_efficient_attention): which kernel a card, dtype, mask and head size get; "
    "and sdpa's padding in attention.cpp (pad_bias, pad_last_dim). The efficient kernel takes as many key as query heads: published "
    "T4 runs of models with grouped keys (fitcheck-llm 0.3.1) have them copied to all heads, not the math kernel's scores",
    "flash_backward": "csrc/flash_attn/flash_api.cpp (mha_bwd): fp32 dq accumulator and softmax sums, expanded dk and dv for grouped keys",
    "efficient_backward": "aten/src/ATen/native/transformers/cuda/attention_backward.cu: delta, and an fp32 accumulator for dq in 16 bit",
    "dequantize_4bit": "bitsandbytes/backends/cuda/ops.py (gemm_4bit): above 512 to 1,536 rows the weight is made 16-bit for the "
    "product; so it is here for any number of rows",
    "grouped_mm": "aten/src/ATen/native/GroupedMMUtils.h (_grouped_mm_fallback): fp32 and fp16 experts are multiplied group by group on "
    "CUDA; torch's shape rule knows bf16 only",
    "accumulate_in_place": "torch/csrc/autograd/input_buffer.cpp (can_accumulate_inplace): gradients of one tensor are summed in the "
    "memory of one of them where nothing else holds it; under a dispatch mode, as here, never",
    "int8_matmul": "bitsandbytes/autograd/_functions.py (matmul): MatMul8bitLt on CUDA, another function on the CPU",
}

_WORKSPACE = ("mm.", "addmm.", "bmm.", "baddbmm.", "addbmm.", "_grouped_mm.", "gemm_4bit.", "int8_scaled_mm.")


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _round(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _softmax_backward(args: Any, kwargs: Any) -> Iterator[tuple[str, int]]:
    yield "softmax backward: grad x output", _bytes(args[0])


def _flash_backward(args: Any, kwargs: Any) -> Iterator[tuple[str, int]]:
    query, key = args[1], args[2]
    B, H, S, A = query.shape
    rows, width = _round(S, 128), _round(A, 32 if A <= 128 else 64)
    yield "flash backward: dq in fp32", 4 * B * rows * H * width
    yield "flash backward: softmax sums", 4 * B * rows * H
    if key.size(1) != H:
        expanded = B * key.size(2) * H * A * query.element_size()
        yield "flash backward: dk for every query head", expanded
        yield "flash backward: dv for every query head", expanded


def _efficient_backward(args: Any, kwargs: Any) -> Iterator[tuple[str, int]]:
    query = args[1]
    B, H, S, A = query.shape
    yield "efficient backward: delta", 4 * B * H * S
    if query.element_size() == 2:
        yield "efficient backward: dq in fp32", 4 * B * H * _round(S, 64) * _round(A, 32)
    else:
        yield "efficient backward: grad x output", 4 * B * H * S * A


def _gemm_4bit(args: Any, kwargs: Any) -> Iterator[tuple[str, int]]:
    rows, columns = args[2]
    narrow_scales = args[7] if len(args) > 7 else None  # the dispatcher hands keywords on by position
    if narrow_scales is not None:
        yield "scales of a 4-bit weight in fp32", 4 * narrow_scales.numel()
    yield "4-bit weight made 16-bit", rows * columns * args[0].element_size()


_TEMPORARIES: dict[str, tuple[str, Callable[[Any, Any], Iterator[tuple[str, int]]]]] = {
    "_softmax_backward_data.default": ("softmax_backward", _softmax_backward),
    "_scaled_dot_product_flash_attention_backward.default": ("flash_backward", _flash_backward),
    "_scaled_dot_product_efficient_attention_backward.default": ("efficient_backward", _efficient_backward),
    "gemm_4bit.default": ("dequantize_4bit", _gemm_4bit),
}


@dataclass
class Behaviours:
    """The table for one card. `without` names rows that are switched off."""

    compute_capability: tuple[int, int] = (8, 0)
    workspace_bytes: int = 0
    flash: bool = False  # FlashAttention-2 was asked for by name
    without: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name not in self.without

    def workspace(self, operator: str) -> int:
        """Bytes of the workspace that this operator asks cuBLAS for; 0 where it is no matrix multiplication."""
        return self.workspace_bytes if "cublas_workspace" in self and operator.startswith(_WORKSPACE) else 0

    def temporaries(self, operator: str, args: Any, kwargs: Any) -> list[tuple[str, int]]:
        """What the CUDA kernel allocates and frees inside this operator: names and bytes."""
        row = _TEMPORARIES.get(operator)
        return list(row[1](args, kwargs)) if row is not None and row[0] in self else []

    @contextmanager
    def emulated(self) -> Iterator[None]:
        """CUDA's paths for operators that differ by device; torch is as it was afterwards, also after an error."""
        with ExitStack() as stack:
            library = torch.library.Library("aten", "IMPL")
            stack.callback(library._destroy)
            if "half_to_float" in self:
                for name in ("softmax", "log_softmax"):
                    library.impl(f"{name}.int", _softmax(getattr(aten, f"_{name}").default), "AutogradCPU")
            if "native_dropout" in self:
                library.impl("dropout", _dropout, "AutogradCPU")
            if "autocast" in self:
                _register_autocast(library)
                plain = torch.is_autocast_enabled
                stack.enter_context(replaced(torch, "is_autocast_enabled", lambda device_type="cpu": plain(device_type)))
            if "sdpa" in self:
                stack.enter_context(replaced(F, "scaled_dot_product_attention", self._attention))
            if "grouped_mm" in self:
                stack.enter_context(_grouped_in_any_precision())
            if "int8_matmul" in self:
                stack.enter_context(_int8_like_cuda())
            yield

    def _attention(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        """torch.nn.functional.scaled_dot_product_attention with the kernel that this card would take."""
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
            if attn_mask is not None and attn_mask.dtype.is_floating_point:
                attn_mask = attn_mask.to(dtype)
            with torch.autocast("cpu", enabled=False):
                return self._kernel(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return self._kernel(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    def _kernel(
        self, query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool,
        scale: float | None, enable_gqa: bool,
    ) -> Any:  # fmt: skip
        heads, A, AV = query.size(-3), query.size(-1), value.size(-1)
        half = query.dtype in (torch.float16, torch.bfloat16)
        if self.flash or (half and mask is None and A <= 256 and A == AV and self.compute_capability >= (8, 0)):
            if AV < A:  # a caller's own doing: models with narrower values pad them for flash
                value = F.pad(value, (0, A - AV))
            padding = -A % 8
            if padding:
                query, key, value = (F.pad(tensor, (0, padding)) for tensor in (query, key, value))
            scale = 1 / math.sqrt(A) if scale is None else scale
            result = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
            return result[..., :AV] if result.size(-1) > AV else result
        aligned = 8 if half else 4
        if A % aligned == 0 and AV % aligned == 0:
            if key.size(-3) != heads:
                key, value = (tensor.repeat_interleave(heads // key.size(-3), dim=-3) for tensor in (key, value))
            bias = None if mask is None else _bias(mask, query, key)
            graph = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, graph, dropout_p, is_causal, scale=scale
            )[0]
        return aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]


def _bias(mask: Any, query: Any, key: Any) -> Any:
    """The additive mask that the efficient kernel reads: 16-bit, rows aligned to 8 elements."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    if mask.size(-1) % 8 and mask.stride(-2) % 8:
        mask = F.pad(mask, (0, -mask.size(-1) % 8))[..., : mask.size(-1)]
    return mask.expand(query.size(0), query.size(-3), query.size(-2), key.size(-2))


def _softmax(kernel: Any) -> Callable[..., Any]:
    def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
        if x.dtype == torch.float16 and dtype == torch.float32:
            return kernel(x, dim, True)
        return kernel(x if dtype is None else x.to(dtype), dim, False)

    return softmax


def _dropout(x: Any, p: float, train: bool) -> Any:
    if not train or p == 0 or not x.numel():
        return x
    return aten.native_dropout(x, p, True)[0] if p < 1 else x * 0


# Not in the CPU's list; overloads as autocast_mode.h names them.
_FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm", "group_norm",
    "norm.Scalar", "norm.ScalarOpt_dim", "logsumexp", "renorm",
)  # fmt: skip
_FP32_BY_DTYPE = ("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum", "sum.dim_IntList")


def _register_autocast(library: Any) -> None:
    """CUDA's fp32 operators under the CPU's autocast, where the CPU has no rule of its own."""
    for name in (*_FP32, *_FP32_BY_DTYPE):
        base, _, overload = name.partition(".")
        operator = getattr(getattr(aten, base), overload or "default")
        if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "AutocastCPU"):
            library.impl(name, _in_fp32(operator, by_dtype=name in _FP32_BY_DTYPE), "AutocastCPU")


def _in_fp32(operator: Any, *, by_dtype: bool) -> Callable[..., Any]:
    without_autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    takes_dtype = [argument.name for argument in operator._schema.arguments].index("dtype") if by_dtype else 0

    def cast(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16) else value

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(without_autocast):
            if not by_dtype:
                return operator(*map(cast, args), **kwargs)
            half = args[0].dtype in (torch.float16, torch.bfloat16)
            if half and kwargs.get("dtype") is None and (len(args) <= takes_dtype or args[takes_dtype] is None):
                args, kwargs = args[:takes_dtype], {**kwargs, "dtype": torch.float32}
            return operator(*args, **kwargs)

    return run


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of a module or object for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _grouped_in_any_precision() -> Iterator[None]:
    from torch import _meta_registrations

    plain = getattr(_meta_registrations, "_meta_grouped_mm_common", None)
    if plain is None:  # before torch 2.9
        yield
        return

    refused = False

    def common(a: Any, b: Any, **kwargs: Any) -> Any:
        nonlocal refused
        refused |= a.dtype != torch.bfloat16
        return plain(a.to(torch.bfloat16), b.to(torch.bfloat16), **kwargs).to(a.dtype)

    try:
        with replaced(_meta_registrations, "_meta_grouped_mm_common", common):
            yield
    finally:
        if refused:  # fake tensors remember results for the whole process, and torch's own rule would not give these
            FakeTensorMode.cache_clear()


@contextmanager
def _int8_like_cuda() -> Iterator[None]:
    import bitsandbytes

    def matmul(a: Any, b: Any, out: Any = None, state: Any = None, threshold: float = 0.0, bias: Any = None) -> Any:
        state.threshold = threshold or state.threshold
        return bitsandbytes.autograd._functions.MatMul8bitLt.apply(a, b, out, bias, state)

    with replaced(bitsandbytes, "matmul", matmul):
        yield
