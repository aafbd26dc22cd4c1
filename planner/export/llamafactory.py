"""LLaMA-Factory: a YAML for `llamafactory-cli train` and its dataset_info.json.

Fields as in LLaMA-Factory 0.9.5 (llamafactory/hparams/*.py, data/parser.py), and of transformers' Seq2SeqTrainingArguments.
"""

import json
from typing import Any

from planner.errors import InvalidJob
from planner.export.shared import accelerate_yaml, deepspeed_json, held_out_share, notes, row_format, targets, zero_stage
from planner.export.text import MARK, header, yaml_text
from planner.export.trl import OPTIMIZERS
from planner.job import Job
from planner.planfile import PlanFile

__all__ = ["llamafactory_files"]

_METHODS = ("full", "freeze", "lora", "qlora", "dora")
_ATTENTION = {"flash": "fa2", "eager": "disabled"}
_ROWS: dict[str, dict[str, Any]] = {
    "messages": {
        "formatting": "sharegpt", "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"},
    },
    "instruction": {"columns": {"prompt": "instruction", "query": "input", "response": "output"}},
    "prompt": {"columns": {"prompt": "prompt", "response": "completion"}},
    "text": {"columns": {"prompt": "text"}},
}  # fmt: skip


def llamafactory_files(plan: PlanFile) -> dict[str, str]:
    """llamafactory.yaml and what it names. Raises InvalidJob for a method, or a sharding, that LLaMA-Factory has not."""
    if plan.job.method not in _METHODS:
        raise InvalidJob(
            "{target} has no method {method!r}; export to TRL, or plan one of {known}",
            field="method", target="LLaMA-Factory", method=plan.job.method, known=", ".join(_METHODS),
        )  # fmt: skip
    if plan.sharding and plan.sharding.kind == "tensor":
        raise InvalidJob(
            "{target} has no tensor parallelism; plan fsdp or zero3, or export to TRL", field="kind", target="LLaMA-Factory"
        )
    apart = plan.sharding is not None and plan.sharding.kind in ("fsdp", "hybrid")
    run = "accelerate launch --config_file accelerate.yaml --module llamafactory.launcher llamafactory.yaml"
    how = f"LLaMA-Factory: {run if apart else 'FORCE_TORCHRUN=1 llamafactory-cli train llamafactory.yaml'}"
    head = header(how, plan.title, [*notes(plan), *_own_notes(plan)])
    rows = {"comment": MARK, "rows": {"file_name": "rows.jsonl", **_ROWS[row_format(plan)]}}
    files = {"llamafactory.yaml": head + yaml_text(_values(plan)), "dataset_info.json": json.dumps(rows, indent=1) + "\n"}
    files |= {"accelerate.yaml": accelerate_yaml(plan)} if apart else {}
    return files | ({"deepspeed.json": deepspeed_json(plan)} if zero_stage(plan) else {})


def _values(plan: PlanFile) -> dict[str, Any]:
    job, policy, held_out = plan.job, plan.policy, held_out_share(plan)
    return {
        "model_name_or_path": job.architecture.name,
        "stage": "pt" if row_format(plan) == "text" else "sft",
        "do_train": True,
        **_method(job),
        "flash_attn": _ATTENTION.get(job.attention_used, job.attention_used),
        "enable_liger_kernel": job.loss == "liger",
        "disable_gradient_checkpointing": job.gradient_checkpointing == "off",
        "use_reentrant_gc": job.gradient_checkpointing == "reentrant",
        "dataset": "rows",
        "dataset_dir": ".",
        "cutoff_len": job.sequence_length,
        "packing": job.packing,
        "val_size": held_out,
        "eval_strategy": "epoch" if held_out else "no",
        "per_device_train_batch_size": job.micro_batch_size,
        "per_device_eval_batch_size": job.eval_micro_batch_size,
        "gradient_accumulation_steps": job.gradient_accumulation_steps,
        "num_train_epochs": plan.workload.epochs,
        "optim": OPTIMIZERS[job.optimizer],
        **({"optim_args": "momentum=0.9"} if job.optimizer == "sgd-momentum" else {}),
        "learning_rate": plan.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": round(plan.warmup_share * plan.workload.steps(job)),
        "max_grad_norm": 1.0,
        "bf16": job.precision == "bf16-mixed" or (job.precision == "bf16" and zero_stage(plan) == 3),
        "fp16": job.precision in ("fp16-mixed", "fp16"),
        "pure_bf16": job.precision == "bf16" and zero_stage(plan) != 3,  # LLaMA-Factory refuses both; stage 3 casts by itself
        "output_dir": "out",
        "save_steps": policy.checkpoint_steps,
        "save_total_limit": policy.checkpoints_kept,
        "dataloader_num_workers": policy.loader_workers,
        "logging_steps": 1,
        "report_to": "none",
        "seed": plan.seed,
        **({"deepspeed": "deepspeed.json"} if zero_stage(plan) else {}),
    }


def _method(job: Job) -> dict[str, Any]:
    if job.method == "full":
        return {"finetuning_type": "full"}
    if job.method == "freeze":
        return {"finetuning_type": "freeze", "freeze_trainable_layers": job.trainable_layers}
    names = targets(job)
    values: dict[str, Any] = {
        "finetuning_type": "lora", "lora_rank": job.lora_rank, "lora_alpha": round(job.lora_alpha), "lora_dropout": job.lora_dropout,
        "lora_target": "all" if names == "all-linear" else ",".join(names), "use_rslora": job.use_rslora, "use_dora": job.method == "dora",
    }  # fmt: skip
    if job.modules_to_save:
        values["additional_target"] = ",".join(job.modules_to_save)
    if job.quantization in ("nf4", "fp4"):
        values |= {"quantization_bit": 4, "quantization_type": job.quantization, "double_quantization": job.double_quant}
    if job.quantization == "int8":
        values["quantization_bit"] = 8
    if "quantization_bit" in values:
        values |= {"quantization_method": "bnb", "upcast_layernorm": job.kbit_preparation}
    return values


def _own_notes(plan: PlanFile) -> list[str]:
    job, found = plan.job, ["rows.jsonl beside this file is what is trained on; dataset_info.json names its format"]
    found.append("template is the tokenizer's own; name the model's in LLaMA-Factory where it has one")
    if not plan.data.format:
        found.append("the plan does not say the format of the rows: messages are taken for it")
    if job.loss not in ("plain", "liger"):
        found.append(f"loss {job.loss}: the plain one is used, and takes more memory")
    if job.lora_alpha != round(job.lora_alpha):
        found.append(f"lora_alpha {job.lora_alpha}: LLaMA-Factory takes whole numbers")
    if job.precision == "fp16":
        found.append("precision fp16: trained parameters are fp32 under autocast here, and take more")
    if job.adapter and job.quantization != "none":
        found.append("kbit_preparation: of what is not quantised only norms become fp32 (upcast_layernorm), which takes less")
    if job.adapter and not job.autocast_adapter_dtype and job.precision.endswith("mixed"):
        found.append("autocast_adapter_dtype off: adapters are fp32 here")
    if job.quantization == "gptq":
        found.append("quantization gptq: model_name_or_path must be a GPTQ checkpoint")
    if job.save == "merged":
        found.append("save merged: llamafactory-cli export, after training")
    return found
