"""What several targets say alike: dtypes, PEFT's names, pinned versions, how GPUs share the model, and what no engine says."""

import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from planner.adapters import ALL_LINEAR
from planner.export.text import MARK, commented, header, yaml_text
from planner.job import Job
from planner.planfile import PlanFile
from planner.stacks import STACKS

__all__ = [
    "DTYPES", "FLASH", "accelerate_yaml", "deepspeed_json", "evaluation_rows", "held_out_share", "notes", "ram_efficient",
    "requirements", "row_format", "targets", "zero_stage",
]  # fmt: skip

# torch's names. Source: planner/dryrun/model.py, DTYPES.
DTYPES = {"bf16-mixed": "bfloat16", "fp16-mixed": "float16", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}

# Where nothing is installed here; the versions that the tests ran with (2026-12).
_TRIED = {
    "torch": "2.13.0", "transformers": "5.25.0", "trl": "1.16.0", "peft": "0.21.2", "accelerate": "1.16.0",
    "datasets": "5.2.0", "bitsandbytes": "0.50.2",
}  # fmt: skip
_DEEPSPEED, FLASH, _GPTQ = "deepspeed==0.19.8", "flash-attn==2.8.3.post2", "gptqmodel==7.7.0"  # read, not run


def requirements(plan: PlanFile) -> str:
    """requirements.txt: the versions that are installed here, else those that the tests ran with."""
    job, names = plan.job, ["torch", "transformers", "trl", "accelerate", "datasets"]
    names += ["peft"] if job.adapter else []
    if job.quantization in ("nf4", "fp4", "int8") or "8bit" in job.optimizer or job.optimizer in ("paged-adamw", "lion"):
        names.append("bitsandbytes")
    lines = [f"{name}=={_installed(name)}" for name in names]
    lines += [_DEEPSPEED] if zero_stage(plan) else []
    lines += [_GPTQ] if job.quantization == "gptq" else []
    text = commented([f"What train.py was tried with; {MARK}"]) + "\n".join(lines) + "\n"
    if job.attention_used == "flash":
        text += commented([f"flash attention is built against torch: pip install --no-build-isolation {FLASH}, after the others"])
    return text


def _installed(name: str) -> str:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return _TRIED[name]


def targets(job: Job) -> Any:
    """target_modules as PEFT takes them."""
    return ALL_LINEAR if job.target_modules == (ALL_LINEAR,) else list(job.target_modules)


def _global_batch(plan: PlanFile) -> int:
    """Rows per optimizer step that the job's sizes come to."""
    ranks = plan.sharding.data_parallel if plan.sharding else 1
    return plan.job.micro_batch_size * plan.job.gradient_accumulation_steps * ranks


def notes(plan: PlanFile) -> list[str]:
    """Fields of the plan that no engine has a setting for, as sentences for an engineer."""
    job, found = plan.job, []
    if job.stack not in ("trainer", "trl"):
        found.append(f"stack {job.stack}: the plan is for {STACKS[job.stack].label}; this one's memory is another")
    if job.transformers != "5":
        found.append(
            f"transformers {job.transformers}: the plan is for its modelling code; version 5 is used here and takes less"
        )
    if job.keep_outputs:
        found.append("keep_outputs: a loop of one's own that holds logits during backward; the Trainer drops them and takes less")
    if job.optimizer_in_backward:
        found.append("optimizer_in_backward: the Trainer keeps all gradients until its step, and takes more memory than planned")
    if job.experts_as_linears:
        found.append("experts_as_linears: transformers 5 fuses the experts into one parameter")
    if plan.workload.global_batch_size != _global_batch(plan):
        asked = plan.workload.global_batch_size
        found.append(
            f"the workload counts {asked} rows per optimizer step; sizes of the job come to {_global_batch(plan)}, as run here"
        )
    if plan.sharding and plan.sharding.fp32_reduction:
        found.append("fp32_reduction: gradients are summed in the compute dtype here")
    return found


def evaluation_rows(plan: PlanFile) -> int:
    """Examples that are held out; where the plan counts none and yet evaluates, as many as a pilot takes (8 micro-batches)."""
    return plan.workload.evaluation_examples or (8 * plan.job.eval_micro_batch_size if plan.job.evaluation else 0)


def held_out_share(plan: PlanFile) -> float:
    """The same as a share of all rows, at most a tenth."""
    rows = evaluation_rows(plan)
    return round(min(rows / (plan.workload.examples + rows), 0.1), 6)


def row_format(plan: PlanFile) -> str:
    """The kind of rows that the plan names; messages where it names none."""
    return next((kind for kind in ("messages", "instruction", "prompt", "text") if kind in plan.data.format), "messages")


def ram_efficient(plan: PlanFile) -> bool:
    """Whether FSDP's first rank loads for all: not FSDP2 with a 4-bit base, which waits for ever.

    Source: axolotl 0.19, utils/schemas/validation.py: the first rank alone would quantise.
    """
    return not (plan.job.quantization in ("nf4", "fp4") and plan.sharding is not None and plan.sharding.fsdp_version == 2)


def zero_stage(plan: PlanFile) -> int:
    """DeepSpeed's stage; 0 where it is not planned."""
    kind = plan.sharding.kind if plan.sharding else ""
    return int(kind[-1]) if kind.startswith("zero") else 0


def accelerate_yaml(plan: PlanFile) -> str:
    """The file that `accelerate launch --config_file` takes.

    Source: accelerate 1.16, commands/config/config_args.py (ClusterConfig), commands/launch.py (its options),
    utils/dataclasses.py (FullyShardedDataParallelPlugin, ParallelismConfig, DeepSpeedPlugin).
    """
    sharding, notes = plan.sharding, []
    mixed = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}.get(plan.job.precision, "no")
    values: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "mixed_precision": mixed}
    values |= {"num_machines": 1, "num_processes": 1, "machine_rank": 0, "main_training_function": "main", "use_cpu": False}
    if sharding:
        values |= {"num_machines": sharding.nodes, "num_processes": sharding.num_gpus, "distributed_type": "MULTI_GPU"}
        if sharding.nodes > 1:
            values |= {"rdzv_backend": "static", "same_network": True, "main_process_port": 29500}
            notes.append("each machine adds --machine_rank N --main_process_ip ADDRESS to accelerate launch")
    if zero_stage(plan):
        del values["mixed_precision"]  # deepspeed.json has it, and Accelerate refuses what is said twice
        values["distributed_type"] = "DEEPSPEED"
        values["deepspeed_config"] = {"deepspeed_config_file": "deepspeed.json", "zero3_init_flag": zero_stage(plan) == 3}
        values["deepspeed_config"] |= {"deepspeed_multinode_launcher": "standard"} if values["num_machines"] > 1 else {}
        notes.append("deepspeed.json is looked for in the folder in which accelerate is started")
    elif sharding and sharding.kind in ("fsdp", "hybrid"):
        values["distributed_type"] = "FSDP"
        values["fsdp_config"] = {
            "fsdp_version": sharding.fsdp_version,
            "fsdp_reshard_after_forward": True if sharding.fsdp_version == 2 else "FULL_SHARD",
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",  # the model's own _no_split_modules
            "fsdp_offload_params": sharding.offload == "parameters",
            "fsdp_state_dict_type": "FULL_STATE_DICT" if plan.policy.full_checkpoints else "SHARDED_STATE_DICT",
            "fsdp_cpu_ram_efficient_loading": ram_efficient(plan),
            "fsdp_sync_module_states": True,
            "fsdp_use_orig_params": True,
        }
        if sharding.kind == "hybrid" and sharding.fsdp_version == 1:
            values["fsdp_config"]["fsdp_reshard_after_forward"] = "HYBRID_SHARD"
        elif sharding.kind == "hybrid":
            copies, parts = sharding.nodes, sharding.gpus_per_node
            values["parallelism_config"] = {
                "parallelism_config_dp_replicate_size": copies,
                "parallelism_config_dp_shard_size": parts,
            }
    return header("How accelerate starts train.py", plan.title, notes) + yaml_text(values)


def deepspeed_json(plan: PlanFile) -> str:
    """The file that DeepSpeed takes; `auto` is filled in by the Trainer from its own arguments.

    Source: deepspeed 0.19.8, runtime/config.py and runtime/zero/config.py; transformers 5.25, integrations/deepspeed.py.
    """
    stage, sharding = zero_stage(plan), plan.sharding
    offload = sharding.offload if sharding else "none"
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True}
    if offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if stage == 3:
        zero |= {
            "stage3_gather_16bit_weights_on_model_save": True, "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto", "reduce_bucket_size": "auto",
        }  # fmt: skip
    values = {
        "comment": MARK,  # DeepSpeed reads the keys that it knows
        "zero_optimization": zero, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,  # the plan's own optimizer, not DeepSpeed's
        "zero_force_ds_cpu_optimizer": False,
    }  # fmt: skip
    return json.dumps(values, indent=1) + "\n"
