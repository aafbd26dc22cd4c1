"""Axolotl: one YAML for `axolotl train`. Fields as in Axolotl 0.19 (axolotl/utils/schemas/*.py, integrations/*/args.py)."""

from typing import Any

from planner.errors import InvalidJob
from planner.export.shared import deepspeed_json, held_out_share, notes, ram_efficient, row_format, targets, zero_stage
from planner.export.text import header, yaml_text
from planner.export.trl import OPTIMIZERS
from planner.job import Job
from planner.planfile import PlanFile

__all__ = ["axolotl_files"]

_METHODS = ("full", "freeze", "lora", "qlora", "dora")
_ATTENTION = {"flash": "flash_attention_2"}
_PRECISION: dict[str, dict[str, Any]] = {
    "bf16-mixed": {"bf16": True}, "fp16-mixed": {"bf16": False, "fp16": True}, "bf16": {"bf16": False, "bfloat16": True},
    "fp16": {"bf16": False, "float16": True}, "fp32": {"bf16": False, "fp16": False},
}  # fmt: skip
_LOSSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunked": {"chunked_cross_entropy": True},
    "cut-ce": {"plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"], "cut_cross_entropy": True},
    "liger": {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_fused_linear_cross_entropy": True},
    "fused-ce": {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_cross_entropy": True},
}
# Entries of `datasets` by the format of rows. Source: axolotl/utils/schemas/datasets.py, axolotl/prompt_strategies.
_ROWS: dict[str, dict[str, Any]] = {
    "messages": {"type": "chat_template", "field_messages": "messages"},
    "instruction": {"type": "alpaca"},
    "prompt": {
        "type": {"field_instruction": "prompt", "field_output": "completion", "format": "{instruction}", "no_input_format": "{instruction}"}
    },
    "text": {"type": "completion", "field": "text"},
}  # fmt: skip


def axolotl_files(plan: PlanFile) -> dict[str, str]:
    """axolotl.yaml and what it names. Raises InvalidJob for a method that Axolotl has not."""
    if plan.job.method not in _METHODS:
        raise InvalidJob(
            "{target} has no method {method!r}; export to TRL, or plan one of {known}",
            field="method", target="Axolotl", method=plan.job.method, known=", ".join(_METHODS),
        )  # fmt: skip
    head = header("Axolotl: axolotl train axolotl.yaml", plan.title, [*notes(plan), *_own_notes(plan)])
    files = {"axolotl.yaml": head + yaml_text(_values(plan))}
    return files | ({"deepspeed.json": deepspeed_json(plan)} if zero_stage(plan) else {})


def _values(plan: PlanFile) -> dict[str, Any]:
    job, policy = plan.job, plan.policy
    values: dict[str, Any] = {
        "base_model": job.architecture.name,
        "datasets": [{"path": "rows.jsonl", "ds_type": "json", **_ROWS[row_format(plan)]}],
        "dataset_prepared_path": "prepared",
        "val_set_size": held_out_share(plan),
        "output_dir": "out",
        **_adapter(job),
        "sequence_len": job.sequence_length,
        "sample_packing": job.packing,
        "pad_to_sequence_len": job.packing,
        "micro_batch_size": job.micro_batch_size,
        "eval_batch_size": job.eval_micro_batch_size,
        "gradient_accumulation_steps": job.gradient_accumulation_steps,
        "num_epochs": plan.workload.epochs,
        "optimizer": OPTIMIZERS[job.optimizer],
        **({"optim_args": {"momentum": 0.9}} if job.optimizer == "sgd-momentum" else {}),
        "learning_rate": plan.learning_rate,
        "lr_scheduler": "linear",
        "warmup_ratio": plan.warmup_share,
        "max_grad_norm": 1.0,
        **_PRECISION[job.precision],
        "gradient_checkpointing": job.gradient_checkpointing != "off",
        "gradient_checkpointing_kwargs": {"use_reentrant": job.gradient_checkpointing == "reentrant"},
        "attn_implementation": _ATTENTION.get(job.attention_used, job.attention_used),
        **_LOSSES[job.loss],
        "save_steps": policy.checkpoint_steps,
        "save_total_limit": policy.checkpoints_kept,
        "auto_resume_from_checkpoints": True,
        "dataloader_num_workers": policy.loader_workers,
        "logging_steps": 1,
        "seed": plan.seed,
    }
    return values | _sharding(plan)


def _adapter(job: Job) -> dict[str, Any]:
    if job.method == "full":
        return {}
    if job.method == "freeze":  # the first number in a parameter's name is its block's; a dot is a dot there
        last = job.architecture.num_hidden_layers
        return {"unfrozen_parameters": [f"^[a-z_.]+.{block}.[a-z]" for block in range(last - job.trainable_layers, last)]}
    four_bit = job.quantization in ("nf4", "fp4")
    values: dict[str, Any] = {
        "adapter": "qlora" if four_bit else "lora", "lora_r": job.lora_rank, "lora_alpha": int(job.lora_alpha),
        "lora_dropout": job.lora_dropout, "peft_use_rslora": job.use_rslora, "peft_use_dora": job.method == "dora",
        "peft_autocast_adapter_dtype": job.autocast_adapter_dtype, "load_in_4bit": four_bit, "load_in_8bit": job.quantization == "int8",
    }  # fmt: skip
    all_linear = targets(job) == "all-linear"
    values |= {"lora_target_linear": True} if all_linear else {"lora_target_modules": targets(job)}
    if job.modules_to_save:
        values["lora_modules_to_save"] = list(job.modules_to_save)
    if job.quantization == "gptq":
        values["gptq"] = True
    if four_bit:
        values["bnb_config_kwargs"] = {"bnb_4bit_quant_type": job.quantization, "bnb_4bit_use_double_quant": job.double_quant}
    return values


def _sharding(plan: PlanFile) -> dict[str, Any]:
    sharding = plan.sharding
    if zero_stage(plan):
        return {"deepspeed": "deepspeed.json"}
    if sharding is None or sharding.kind == "ddp":
        return {}
    if sharding.kind == "tensor":
        return {"tensor_parallel_size": sharding.num_gpus}
    values: dict[str, Any] = {
        "fsdp_version": sharding.fsdp_version,
        "fsdp_config": {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "offload_params": sharding.offload == "parameters", "reshard_after_forward": True,
            "cpu_ram_efficient_loading": ram_efficient(plan), "final_state_dict_type": "FULL_STATE_DICT",
            "state_dict_type": "FULL_STATE_DICT" if plan.policy.full_checkpoints else "SHARDED_STATE_DICT",
        },
    }  # fmt: skip
    return values | (
        {"dp_replicate_size": sharding.nodes, "dp_shard_size": sharding.gpus_per_node} if sharding.kind == "hybrid" else {}
    )


def _own_notes(plan: PlanFile) -> list[str]:
    job, found = plan.job, ["rows.jsonl beside this file is what is trained on; datasets names its format"]
    if not plan.data.format:
        found.append("the plan does not say the format of the rows: messages are taken for it")
    if row_format(plan) == "messages":
        found.append("the chat template is the tokenizer's own; where it has none, add chat_template: chatml")
    if job.lora_alpha != int(job.lora_alpha):
        found.append(f"lora_alpha {job.lora_alpha}: Axolotl takes whole numbers")
    if job.quantization not in ("none", "gptq") and not job.kbit_preparation:
        found.append("kbit_preparation off: Axolotl prepares a quantised base whenever it trains one")
    if job.stack == "trl" and job.quantization != "none":
        found.append("stack trl: embeddings and head stay as Axolotl's preparation leaves them")
    if job.save == "merged":
        found.append("save merged: axolotl merge-lora axolotl.yaml, after training")
    if job.packing:
        found.append("packing: whole examples share a row and do not see each other; a pilot fills rows to the last token")
    if plan.sharding and plan.sharding.nodes > 1:
        found.append(
            f"{plan.sharding.nodes} machines: axolotl train axolotl.yaml --launcher torchrun -- with torchrun's --nnodes and --node_rank"
        )
    return found
