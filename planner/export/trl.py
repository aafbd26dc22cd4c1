"""TRL: a script with SFTConfig, PEFT's and bitsandbytes' configurations, Accelerate's and DeepSpeed's files, pinned requirements.

Fields as in TRL 1.16 (trl/trainer/sft_config.py, sft_trainer.py) on transformers 5.25 (training_args.py) and PEFT 0.21.
"""

import json
import re
from typing import Any

from planner.adapters import IA3
from planner.errors import InvalidJob
from planner.export.shared import (
    DTYPES,
    accelerate_yaml,
    deepspeed_json,
    evaluation_rows,
    notes,
    requirements,
    targets,
    zero_stage,
)
from planner.export.text import header
from planner.export.trl_script import SCRIPT
from planner.job import Job
from planner.memory.widths import widths
from planner.planfile import PlanFile

__all__ = ["OPTIMIZERS", "trl_files"]

# transformers' names (training_args.py, OptimizerNames), and optim_args.
OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw-fused": "adamw_torch_fused", "adamw-8bit": "adamw_8bit", "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit", "adafactor": "adafactor", "lion": "lion_32bit", "lion-8bit": "lion_8bit",
    "sgd": "sgd", "sgd-momentum": "sgd",
}  # fmt: skip
_WHOLE = ("", "ddp", "zero1", "zero2")  # the whole model is loaded onto the rank's own GPU
_PLAIN_LOSS = '''

class PlainLossTrainer(SFTTrainer):
    """The model's own loss on whole logits, as planned; SFTTrainer's own takes them in tiles and needs less memory."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return Trainer.compute_loss(self, model, inputs, return_outputs, num_items_in_batch)

'''


def trl_files(plan: PlanFile) -> dict[str, str]:
    """train.py and what it needs. Raises InvalidJob for bottleneck adapters, which PEFT has not."""
    if plan.job.method == "bottleneck":
        raise InvalidJob("{target} has no bottleneck adapters; export another method", field="method", target="TRL")
    files = {"train.py": _script(plan), "accelerate.yaml": accelerate_yaml(plan), "requirements.txt": requirements(plan)}
    return files | ({"deepspeed.json": deepspeed_json(plan)} if zero_stage(plan) else {})


def _script(plan: PlanFile) -> str:
    job = plan.job
    several = plan.sharding is not None
    run = "accelerate launch --config_file accelerate.yaml train.py" if several else "python train.py"
    chosen = {
        "HEADER": header("TRL script", plan.title, [*notes(plan), *_own_notes(plan)]).rstrip("\n"),
        "TITLE": _one_line(job.architecture.name),
        "COMMAND": f"{run} --data rows.jsonl --output out",
        "RESULT": "the adapter" if job.adapter else "the model",
        "IMPORTS": _imports(job, plan.sharding is not None and plan.sharding.kind == "tensor"),
        "MODEL": _literal(job.architecture.name),
        "DTYPE": DTYPES[job.precision],
        "ATTENTION": _attention(job),
        "OPTIMIZER": _literal(OPTIMIZERS[job.optimizer]),
        "EVALUATION_ROWS": str(evaluation_rows(plan)),
        "CLASSES": _PLAIN_LOSS if job.loss == "plain" else "",
        "BUILD": _indented(_build(plan), 4),
        "EPOCHS": f"{plan.workload.epochs:g}",
        "BF16": "CUDA" if job.precision == "bf16-mixed" else "False",
        "FP16": "CUDA" if job.precision == "fp16-mixed" else "False",
        "CONFIG": _indented([f"{name}={_literal(value)}," for name, value in _config(plan).items()], 8),
        "VIRTUAL": str(job.virtual_tokens),
        "TRAINER": "PlainLossTrainer" if job.loss == "plain" else "SFTTrainer",
        "AFTER": _indented(_after(plan), 4),
        "SAVE": _indented(_save(plan), 4),
    }
    return re.sub(r"@([A-Z0-9_]+)@", lambda found: chosen[found[1]], SCRIPT)


def _attention(job: Job) -> str:
    return '"flash_attention_2" if CUDA else "sdpa"' if job.attention_used == "flash" else _literal(job.attention_used)


def _one_line(text: str) -> str:
    """A name inside a docstring."""
    return re.sub(r"[^\w ./:+-]", "_", text)


def _literal(value: Any) -> str:
    """A value as Python writes it, of strings only what ASCII can show, so that nothing ends a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value) if isinstance(value, str) and value.isascii() else ascii(value)


def _indented(lines: list[str], spaces: int) -> str:
    return "".join(f"{' ' * spaces}{line}\n" for line in lines)


def _imports(job: Job, tensor: bool) -> str:
    peft = [_peft_class(job)] if job.adapter else []
    peft += ["PeftModel"] if job.save == "merged" else []
    peft += ["get_peft_model"] if job.adapter else []
    peft += ["prepare_model_for_kbit_training"] if _prepared(job) else []
    of_transformers = ["AutoModelForCausalLM", "AutoTokenizer"]
    of_transformers += ["BitsAndBytesConfig"] if _bitsandbytes(job) else []
    of_transformers += ["Trainer"] if job.loss == "plain" else []
    lines = [f"from peft import {', '.join(peft)}"] if peft else []
    lines.append(f"from transformers import {', '.join([*of_transformers, 'set_seed'])}")
    lines += ["from transformers.distributed import DistributedConfig"] if tensor else []
    lines.append("from trl import SFTConfig, SFTTrainer")
    return "\n".join(lines)


def _bitsandbytes(job: Job) -> bool:
    return job.quantization in ("nf4", "fp4", "int8")


def _prepared(job: Job) -> bool:
    return job.quantization != "none" and job.kbit_preparation


def _cast_back(job: Job) -> bool:
    """Whether embeddings and head become 16-bit again after the k-bit preparation: see planner.stacks."""
    return _bitsandbytes(job) and _prepared(job) and widths(job).vectors == 2


def _peft_class(job: Job) -> str:
    return {
        "ia3": "IA3Config",
        "prefix": "PrefixTuningConfig",
        "prompt": "PromptTuningConfig",
        "p-tuning": "PromptEncoderConfig",
    }.get(job.method, "LoraConfig")


def _peft_fields(job: Job) -> dict[str, Any]:
    """Fields of PEFT's configuration. Source: peft/tuners/*/config.py."""
    a, saved = job.architecture, {"modules_to_save": list(job.modules_to_save)} if job.modules_to_save else {}
    heads = {"num_attention_heads": a.num_attention_heads} if a.model_type == "mpt" else {}  # PEFT asks
    common = {"task_type": "CAUSAL_LM"}
    if isinstance(job.adapter, IA3):
        names, feedforward = job.adapter.layer_names(a)
        return {"target_modules": names, "feedforward_modules": feedforward, **saved, **common}
    if job.virtual_tokens:
        encoder = {"encoder_hidden_size": a.hidden_size} if job.method == "p-tuning" else {}
        return {"num_virtual_tokens": job.num_virtual_tokens, **encoder, **heads, **common}
    return {
        "r": job.lora_rank, "lora_alpha": job.lora_alpha, "lora_dropout": job.lora_dropout, "target_modules": targets(job),
        "use_dora": job.method == "dora", "use_rslora": job.use_rslora, **saved, **common,
    }  # fmt: skip


def _build(plan: PlanFile) -> list[str]:
    """The base as the pilot loads it (planner/pilot/model.py, trained_base), then its adapter or its frozen blocks."""
    job, kind = plan.job, plan.sharding.kind if plan.sharding else ""
    wide = job.adapter is None and job.numbers.autocast
    lines = ["model = AutoModelForCausalLM.from_pretrained(", "    name,"]
    lines += [
        f"    dtype={'torch.float32' if wide else 'DTYPE'},",
        "    attn_implementation=ATTENTION,",
        "    use_safetensors=True,",
    ]
    if kind in _WHOLE:
        lines.append('    device_map={"": int(os.environ.get("LOCAL_RANK", 0))} if CUDA else None,')
    lines += (
        [f"    distributed_config=DistributedConfig(tp_size={plan.sharding.num_gpus}),"]
        if plan.sharding and kind == "tensor"
        else []
    )
    if job.quantization == "int8":
        lines.append("    quantization_config=BitsAndBytesConfig(load_in_8bit=True),")
    elif _bitsandbytes(job):
        lines += [
            "    quantization_config=BitsAndBytesConfig(", "        load_in_4bit=True,", f"        bnb_4bit_quant_type={_literal(job.quantization)},",
            f"        bnb_4bit_use_double_quant={job.double_quant},", "        bnb_4bit_compute_dtype=DTYPE,",
            *(["        bnb_4bit_quant_storage=DTYPE,  # so that FSDP can divide it"] if plan.sharding and plan.sharding.divided_base else []),
            "    ),",
        ]  # fmt: skip
    lines += [")", "model.config.use_cache = False"]
    if _prepared(job):
        on, how = job.gradient_checkpointing != "off", _literal(_checkpointing(job))
        call = f"    model, use_gradient_checkpointing={on}, gradient_checkpointing_kwargs={how}"
        lines += ["model = prepare_model_for_kbit_training(", call, ")"]
    if _cast_back(job):
        lines.append("for part in (model.get_input_embeddings(), model.get_output_embeddings()):")
        lines.append("    part.to(DTYPE)  # of a 4-bit base only norms stay fp32")
    if job.method == "freeze":
        lines += [
            "model.requires_grad_(False)", "count = model.config.get_text_config().num_hidden_layers",
            "blocks = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == count)",
            f"for block in blocks[-{job.trainable_layers}:]:", "    block.requires_grad_(True)",
        ]  # fmt: skip
    if job.adapter:
        fp32 = job.autocast_adapter_dtype and not (kind == "zero3" and job.quantization == "none")
        lines += [
            f"adapter = {_peft_class(job)}(",
            *(f"    {name}={_literal(value)}," for name, value in _peft_fields(job).items()),
            ")",
        ]
        lines += [
            f"model = get_peft_model(model, adapter, autocast_adapter_dtype={fp32})",
            'say("{:,} of {:,} parameters are trained".format(*model.get_nb_trainable_parameters()))',
        ]
    return lines


def _checkpointing(job: Job) -> dict[str, Any]:
    return {"use_reentrant": job.gradient_checkpointing == "reentrant"}


def _config(plan: PlanFile) -> dict[str, Any]:
    """Fields of SFTConfig that hold a value of the plan, and the few that make the run the plan's and quiet."""
    job, policy = plan.job, plan.policy
    fields: dict[str, Any] = {
        "num_train_epochs": plan.workload.epochs,
        "per_device_train_batch_size": job.micro_batch_size,
        "per_device_eval_batch_size": job.eval_micro_batch_size,
        "gradient_accumulation_steps": job.gradient_accumulation_steps,
        "learning_rate": plan.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": min(plan.warmup_share, 0.999),  # below 1 it is a share of all steps
        "max_grad_norm": 1.0,
        "seed": plan.seed,
        "max_length": job.sequence_length,
        "packing": job.packing,
        "packing_strategy": "wrapped",  # full rows, cut where they are full, as a pilot packs them
        "gradient_checkpointing": job.gradient_checkpointing != "off",
        "gradient_checkpointing_kwargs": _checkpointing(job),
        "logging_steps": 1,
        "save_steps": policy.checkpoint_steps,
        "save_total_limit": policy.checkpoints_kept,
        "dataloader_num_workers": policy.loader_workers,
        "report_to": "none",
        "disable_tqdm": True,
    }
    fields |= {"optim_args": "momentum=0.9"} if job.optimizer == "sgd-momentum" else {}
    return fields | ({"ddp_find_unused_parameters": False} if plan.sharding and plan.sharding.kind == "ddp" else {})


def _after(plan: PlanFile) -> list[str]:
    """SFTTrainer makes adapters of a quantised base bf16, whatever the plan's; FSDP and DeepSpeed cast by themselves."""
    if not _bitsandbytes(plan.job) or (plan.sharding and plan.sharding.kind != "ddp"):
        return []
    dtype = "torch.float32" if widths(plan.job).adapter == 4 else "DTYPE"
    return [
        "for parameter in model.parameters():  # SFTTrainer has made those of an adapter on a quantised base bf16",
        "    if parameter.requires_grad:",
        f"        parameter.data = parameter.data.to({dtype})",
    ]


def _save(plan: PlanFile) -> list[str]:
    lines = ['final = Path(given.output, "final")']
    if plan.sharding and plan.sharding.kind in ("fsdp", "hybrid"):
        lines += [
            "if trainer.is_fsdp_enabled:",
            '    trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")',
        ]
    lines.append("trainer.save_model(str(final))")
    if plan.job.save == "merged":
        lines += [
            "if trainer.is_world_process_zero():  # the adapter added to a 16-bit base, in RAM",
            "    base = AutoModelForCausalLM.from_pretrained(given.model, dtype=DTYPE, use_safetensors=True)",
            "    PeftModel.from_pretrained(base, final).merge_and_unload().save_pretrained(final.with_name(\"merged\"))",
            "    tokenizer.save_pretrained(final.with_name(\"merged\"))",
        ]  # fmt: skip
    return lines


def _own_notes(plan: PlanFile) -> list[str]:
    """What TRL does otherwise."""
    job, kind, found = plan.job, plan.sharding.kind if plan.sharding else "", []
    if job.loss not in ("plain", "chunked"):
        found.append(f"loss {job.loss}: TRL takes the head and the loss in tiles of its own; neither holds all logits")
    if not job.packing and not job.varying_lengths:
        found.append("packing off: a batch is padded to its longest row, not to sequence_length, so steps may take less")
    found.append("rows with a prompt train on the completion only; a pilot trains on all tokens, in the same memory")
    if job.quantization == "gptq":
        found.append("quantization gptq: --model must be a GPTQ checkpoint; nothing is quantised here")
    if job.attention_used == "flash":
        found.append("attention flash: install flash-attn as requirements.txt says")
    if kind == "zero3" and job.adapter:
        found.append("zero3: TRL needs adapters in the base's dtype, and makes gradient checkpointing reentrant")
    if kind == "tensor":
        found.append("tensor: transformers divides the linear layers (DistributedConfig); not tried by the planner's tests")
    return found
