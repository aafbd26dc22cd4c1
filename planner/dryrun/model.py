"""The real model of a job: transformers' class on the meta device, its adapters by PEFT, its 4-bit layers by bitsandbytes.

Nothing here holds weights: parameters are made on `meta`, then planner.dryrun.placement puts a fake tensor in place of each.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from planner.adapters import ALL_LINEAR
from planner.architecture import Architecture
from planner.dryrun.cuda import replaced
from planner.errors import InvalidJob
from planner.job import Job

__all__ = [
    "DTYPES",
    "base_model",
    "block_list",
    "build_model",
    "made_trainable",
    "new_linear",
    "put_quantized_layers",
    "transformers_config",
]

DTYPES = {
    "bf16-mixed": torch.bfloat16,
    "fp16-mixed": torch.float16,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}
_NOT_QUANTIZED = ("lm_head", "embed_out", "output_layer")  # transformers keeps the output head as it is

# What is no field of a configuration class.
_NO_FIELD = ("architectures", "torch_dtype", "dtype", "transformers_version", "quantization_config", "auto_map", "text_config")


def transformers_config(architecture: Architecture, num_layers: int | None = None, kinds: list[int] | None = None) -> Any:
    """The configuration object of the architecture's class; with `kinds`, of a model of those of its blocks only.

    Raises InvalidJob where the installed transformers has no class for it, or the class refuses the values.
    """
    import transformers

    fields = {k: v for k, v in json.loads(architecture.config_json or "{}").items() if k not in _NO_FIELD and v is not None}
    fields |= _renamed(architecture)
    fields.setdefault("pad_token_id", 0)  # some classes default to an id beyond a small vocabulary
    try:
        kind = type(transformers.AutoConfig.for_model(architecture.model_type))
        computed = {name for name in fields if isinstance(found := getattr(kind, name, None), property) and found.fset is None}
        config = kind(**{name: value for name, value in fields.items() if name not in computed | {"model_type"}})
    except ValueError as error:
        raise InvalidJob(
            "transformers {version} has no model_type {given!r}, so it cannot be run dry; the closed form may still know it",
            field="model_type", version=transformers.__version__, given=architecture.model_type,
        ) from error  # fmt: skip
    except Exception as error:
        raise InvalidJob(
            "transformers {version} refuses this configuration of {given} ({problem})",
            version=transformers.__version__, given=architecture.model_type, problem=_first_line(error),
        ) from error  # fmt: skip
    config.use_cache = False
    if kinds is not None:
        _keep_blocks(config, architecture, kinds)
    return config


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _renamed(a: Architecture) -> dict[str, Any]:
    """The fields of a record under the names of its configuration class; they win over what the catalogue calls them."""
    values = {
        "hidden_size": a.hidden_size, "num_hidden_layers": a.num_hidden_layers, "num_attention_heads": a.num_attention_heads,
        "vocab_size": a.vocab_size, "tie_word_embeddings": a.tie_word_embeddings, "max_position_embeddings": a.max_position_embeddings,
    }  # fmt: skip
    width, grouped = {"intermediate_size": a.intermediate_size}, {"num_key_value_heads": a.num_key_value_heads}
    experts = {"num_experts_per_tok": a.num_experts_per_tok}
    match a.model_type:
        case "gpt2":
            return {
                **values,
                "n_inner": a.intermediate_size,
                "n_positions": a.learned_positions,
                "activation_function": a.hidden_act,
            }
        case "opt":
            pre_norm = {"do_layer_norm_before": a.final_norm, "word_embed_proj_dim": a.embedding_size or a.hidden_size}
            return {**values, **pre_norm, "ffn_dim": a.intermediate_size, "max_position_embeddings": a.learned_positions - 2}
        case "bloom":
            return values
        case "mpt":
            return {**values, "max_seq_len": a.max_position_embeddings}
        case "falcon":
            new = {"new_decoder_architecture": a.norms_per_block == 2 and a.parallel_block, "num_kv_heads": a.num_key_value_heads}
            return {**values, **new, "ffn_hidden_size": a.intermediate_size, "alibi": not a.rotary}
        case "mixtral" | "gpt_oss":
            return {**values, **width, **grouped, **experts, "head_dim": a.head_dim, "num_local_experts": a.num_experts}
        case "qwen2_moe" | "qwen3_moe":
            shared = {"shared_expert_intermediate_size": a.shared_expert_intermediate_size, "head_dim": a.head_dim}
            more = {"num_experts": a.num_experts, "moe_intermediate_size": a.moe_intermediate_size}
            return {**values, **width, **grouped, **experts, **shared, **more}
        case "deepseek_v2" | "deepseek_v3":
            latent = {f: getattr(a, f) for f in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
            more = {f: getattr(a, f) for f in ("moe_intermediate_size", "first_k_dense_replace")}
            shared = {"n_shared_experts": a.shared_expert_intermediate_size // a.moe_intermediate_size}
            return {
                **values, **width, **experts, **latent, **more, **shared, "n_routed_experts": a.num_experts,
                "q_lora_rank": a.q_lora_rank or None,
            }  # fmt: skip
        case "stablelm":
            return {**values, **width, **grouped, "use_qkv_bias": a.qkv_bias, "use_parallel_residual": a.parallel_block}
        case "phi" | "gpt_neox":
            return {**values, **width, **(grouped if a.model_type == "phi" else {})}
        case _:
            return {**values, **width, **grouped, "head_dim": a.head_dim}


def _keep_blocks(config: Any, a: Architecture, kept: list[int]) -> None:
    """Make the configuration one of fewer blocks: those numbered `kept`."""
    for field in ("num_hidden_layers", "n_layer", "n_layers"):
        if hasattr(config, field):
            setattr(config, field, len(kept))
            break
    for field in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        if isinstance(values := getattr(config, field, None), list) and len(values) >= a.num_hidden_layers:
            setattr(config, field, [values[block] for block in kept])
    if getattr(config, "first_k_dense_replace", None):
        config.first_k_dense_replace = sum(block < config.first_k_dense_replace for block in kept)


def block_list(model: nn.Module, count: int) -> tuple[str, nn.ModuleList]:
    """The list of transformer blocks and its name."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, module
    raise InvalidJob("the blocks of {model} were not found, so it cannot be run dry", model=type(model).__name__)


def build_model(job: Job, config: Any, trained_blocks: list[bool]) -> nn.Module:
    """The model on `meta`, quantised, prepared, with its adapter, ready to train; raises InvalidJob where a library refuses."""
    flash = job.attention_used == "flash"  # runs as sdpa with the kernel pinned: flash-attn itself needs a GPU
    model = base_model(job, config, "sdpa" if flash else job.attention_used)
    model.tie_weights()
    if job.quantization != "none":
        put_quantized_layers(model, job)
    return made_trainable(model, job, trained_blocks)


def base_model(job: Job, config: Any, attention: str, place: Any = None) -> Any:
    """The architecture's class on `meta` (or in the context `place`), in the dtype that the job keeps its weights in."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    base = torch.float32 if job.precision == "fp32" or (job.adapter is None and job.numbers.autocast) else DTYPES[job.precision]
    flash = job.attention_used == "flash"
    kind = next(c for c in MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].__mro__ if "_supports_sdpa" in vars(c))
    with place or torch.device("meta"), replaced(kind, "_supports_sdpa", True) if flash else nullcontext():
        return AutoModelForCausalLM.from_config(config, dtype=base, attn_implementation=attention)


def made_trainable(model: Any, job: Job, trained_blocks: list[bool], device: str = "meta") -> nn.Module:
    """Prepare a base for training: k-bit preparation, the adapter (on `device`), checkpointing; raises InvalidJob."""
    checkpointing = {"use_reentrant": job.gradient_checkpointing == "reentrant", "preserve_rng_state": False}
    if job.quantization != "none" and job.kbit_preparation:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=job.gradient_checkpointing != "off", gradient_checkpointing_kwargs=checkpointing
        )
    with torch.device(device):
        model = _with_adapter(model, job, trained_blocks)
    if job.gradient_checkpointing != "off":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing)
        if job.adapter is not None:
            model.enable_input_require_grads()
    model.train()
    return model  # type: ignore[no-any-return]


def put_quantized_layers(model: nn.Module, job: Job, fill: Callable[[Any], None] = lambda layer: None) -> None:
    """Put bitsandbytes' layers in place of the linear ones, as transformers' quantizer does, on `meta` but for what `fill` does."""
    import bitsandbytes as bnb
    from transformers.pytorch_utils import Conv1D

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in _NOT_QUANTIZED or isinstance(child, bnb.nn.Linear4bit | bnb.nn.Linear8bitLt):
                continue
            if isinstance(child, Conv1D):  # GPT-2's linear, stored the other way round
                columns, rows = child.weight.shape
            elif isinstance(child, nn.Linear):
                rows, columns = child.weight.shape
            else:
                continue
            new = new_linear(job, columns, rows, bias=child.bias is not None)
            if child.bias is not None:
                new.bias = nn.Parameter(torch.empty(rows, dtype=child.bias.dtype, device="meta"), requires_grad=False)
            new.source_cls = type(child)
            new.requires_grad_(False)
            fill(new)
            setattr(parent, name, new)
    model.is_quantized, model.quantization_method = True, "bitsandbytes"  # type: ignore[assignment]
    model.is_loaded_in_8bit = job.quantization == "int8"  # type: ignore[assignment]
    model.is_loaded_in_4bit = not model.is_loaded_in_8bit  # type: ignore[assignment]


def new_linear(job: Job, columns: int, rows: int, *, bias: bool) -> Any:
    """bitsandbytes' layer of the job's format, on `meta`."""
    import bitsandbytes as bnb

    if job.quantization == "int8":
        return bnb.nn.Linear8bitLt(columns, rows, bias=bias, has_fp16_weights=False, threshold=0.0, device="meta")
    return bnb.nn.Linear4bit(
        columns, rows, bias=bias, compute_dtype=DTYPES[job.precision], compress_statistics=job.double_quant,
        quant_type=job.quantization, device="meta",
    )  # fmt: skip


def _with_adapter(model: Any, job: Job, trained_blocks: list[bool]) -> Any:
    if job.method == "full":
        return model
    if job.method == "freeze":
        model.requires_grad_(False)
        for trained, block in zip(trained_blocks, block_list(model, len(trained_blocks))[1], strict=True):
            block.requires_grad_(trained)
        return model
    if job.method == "bottleneck":
        return _with_bottlenecks(model, job, len(trained_blocks))
    import peft

    save = list(job.modules_to_save) or None
    common: dict[str, Any] = {"task_type": "CAUSAL_LM"}
    heads = (
        {"num_attention_heads": job.architecture.num_attention_heads} if job.architecture.model_type == "mpt" else {}
    )  # PEFT asks
    targets: Any = ALL_LINEAR if job.target_modules == (ALL_LINEAR,) else list(job.target_modules)
    configs: dict[str, Callable[[], Any]] = {
        "prefix": lambda: peft.PrefixTuningConfig(num_virtual_tokens=job.num_virtual_tokens, **heads, **common),
        "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=job.num_virtual_tokens, **heads, **common),
        "p-tuning": lambda: peft.PromptEncoderConfig(
            num_virtual_tokens=job.num_virtual_tokens, encoder_hidden_size=job.architecture.hidden_size, **heads, **common
        ),
        "ia3": lambda: peft.IA3Config(modules_to_save=save, **_ia3_targets(job), **common),
    }
    lora = lambda: peft.LoraConfig(  # noqa: E731
        r=job.lora_rank, lora_alpha=job.lora_alpha, lora_dropout=job.lora_dropout, target_modules=targets,
        use_dora=job.method == "dora", use_rslora=job.use_rslora, modules_to_save=save, **common,
    )  # fmt: skip
    try:
        model = peft.get_peft_model(model, configs.get(job.method, lora)(), autocast_adapter_dtype=job.autocast_adapter_dtype)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidJob(
            "PEFT {version} refuses {method} on {model} ({problem})",
            field="method", version=peft.__version__, method=job.method, model=job.architecture.name, problem=_first_line(error),
        ) from error  # fmt: skip
    narrow = job.quantization == "none" and not job.autocast_adapter_dtype
    for module in model.modules() if narrow else ():
        if isinstance(module, peft.tuners.tuners_utils.BaseTunerLayer):
            _take_dtype(module)
    return model


def _take_dtype(layer: Any) -> None:
    """PEFT's _move_adapter_to_device_of_base_layer, which leaves what is on `meta` alone: an adapter takes its base's dtype."""
    dtype = (layer.get_param() if hasattr(layer, "get_param") else layer.get_base_layer().weight).dtype
    for name in (*layer.adapter_layer_names, *layer.other_param_names):
        if isinstance(part := getattr(layer, name, None), nn.ModuleDict | nn.ParameterDict):
            part.to(dtype)


def _ia3_targets(job: Job) -> dict[str, Any]:
    adapter: Any = job.adapter
    return dict(zip(("target_modules", "feedforward_modules"), adapter.layer_names(job.architecture), strict=True))


class _Bottleneck(nn.Module):
    """D -> m -> D beside a linear's output. Source: Houlsby et al. 2019, arXiv:1902.00751, sec. 2.1."""

    def __init__(self, base: nn.Module, width: int, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.base = base
        self.bottleneck_down = nn.Linear(width, size, dtype=dtype)
        self.bottleneck_up = nn.Linear(size, width, dtype=dtype)

    def forward(self, x: Any) -> Any:
        result = self.base(x)
        added = self.bottleneck_up(torch.relu(self.bottleneck_down(result.to(self.bottleneck_down.weight.dtype))))
        return result + added.to(result.dtype)


def _with_bottlenecks(model: Any, job: Job, count: int) -> Any:
    """One after attention, one after the MLP; PEFT has none, so these are our own."""
    model.requires_grad_(False)
    names = {job.architecture.out_name, job.architecture.mlp_names[-1]}
    dtype = torch.float32 if job.autocast_adapter_dtype else DTYPES[job.precision]
    for block in block_list(model, count)[1]:
        for parent in list(block.modules()):
            for name, child in list(parent.named_children()):
                if name in names and not isinstance(parent, _Bottleneck):
                    setattr(parent, name, _Bottleneck(child, job.architecture.hidden_size, job.bottleneck_size, dtype))
    return model
