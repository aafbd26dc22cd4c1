"""SkyPilot: a task that rents the chosen offer, or its like, and runs the TRL export there.

Fields as in SkyPilot 0.14 (sky/utils/schemas.py: task, resources and storage), names of clouds and cards as in its catalogues.
"""

import math
import re
from typing import Any

from planner.catalogues import find_gpu
from planner.export.shared import FLASH, notes
from planner.export.text import header, yaml_text
from planner.export.trl import trl_files
from planner.planfile import PlanFile
from planner.storage import storage

__all__ = ["skypilot_files"]

# SkyPilot's names of our providers; what is missing it does not rent. Source: sky/clouds/*.py.
CLOUDS = {
    "aws": "aws", "azure": "azure", "gcp": "gcp", "oci": "oci", "runpod": "runpod", "vast": "vast", "lambda": "lambda", "nebius": "nebius",
    "verda": "verda", "seeweb": "seeweb", "yotta": "yotta", "mithril": "mithril",
}  # fmt: skip
_NAMED_MACHINES = ("aws", "azure", "gcp")  # whose instance types have the provider's own names there
# Source: sky/catalog/data_fetchers/*.py. Clouds differ: H100 may be H100-SXM on one of them; `sky show-gpus` lists them.
CARDS = {
    "t4": "T4", "v100-sxm2-16": "V100", "v100-sxm2-32": "V100-32GB", "p100-pcie-16": "P100", "l4": "L4", "l40": "L40",
    "l40s": "L40S", "a10": "A10", "a10g": "A10G", "a30": "A30", "a40": "A40", "a100-sxm4-40": "A100", "a100-pcie-40": "A100",
    "a100-sxm4-80": "A100-80GB", "a100-pcie-80": "A100-80GB", "h100-sxm5-80": "H100", "h100-pcie-80": "H100-PCIe",
    "h100-nvl-94": "H100-NVL", "h200-sxm-141": "H200", "gh200-96": "GH200", "b200-sxm-180": "B200", "b300-sxm": "B300",
    "gb200": "GB200", "rtx-a4000": "RTXA4000", "rtx-a4500": "RTXA4500", "rtx-a5000": "RTXA5000", "rtx-a6000": "RTXA6000",
    "rtx-6000-ada": "RTX6000-Ada", "rtx-5000-ada": "RTX5000-Ada", "rtx-3090-24": "RTX3090", "rtx-4090-24": "RTX4090",
    "rtx-5090-32": "RTX5090", "rtx-pro-6000-se": "RTXPRO6000", "mi300x": "MI300X",
}  # fmt: skip
_BUCKET = re.compile(r"(?:s3|gs|r2|oci|cos|nebius|https)://\S+")
_HOW = (
    "Put rows.jsonl beside this file; where the model is gated, have HF_TOKEN in your environment, else leave --secret out. Then",
    "  sky launch -c plan --secret HF_TOKEN --env RUN=pilot skypilot.yaml    20 steps first",
    "  sky jobs launch --secret HF_TOKEN skypilot.yaml                       the whole run; an interrupted one goes on elsewhere",
    "  rsync -av plan:~/record/ record/ && sky down plan                     brings the record back, ends the machine",
)


def skypilot_files(plan: PlanFile) -> dict[str, str]:
    """skypilot.yaml, and the files of the TRL export, which it runs."""
    head = header("SkyPilot", plan.title, _own_notes(plan)) + "".join(f"# {line}".rstrip() + "\n" for line in ("", *_HOW))
    return {"skypilot.yaml": head + yaml_text(_values(plan)), **trl_files(plan)}


def _values(plan: PlanFile) -> dict[str, Any]:
    count = min(plan.sharding.num_gpus, plan.sharding.gpus_per_node) if plan.sharding else 1
    disk_bytes = storage(plan.job, plan.workload, plan.policy, plan.sharding).peak_bytes
    resources: dict[str, Any] = {"accelerators": {_card(plan): count}}
    resources |= {"use_spot": plan.wishes.spot, "disk_size": max(50, math.ceil(disk_bytes / 1e9))}
    if plan.offer:
        provider, instance_type = plan.offer[:2]
        region = f"/{plan.care.region}" if re.fullmatch(r"[a-z]+-[a-z]+-?\d", plan.care.region) else ""
        resources |= {"infra": CLOUDS[provider] + region} if provider in CLOUDS else {}
        resources |= {"instance_type": instance_type} if provider in _NAMED_MACHINES else {}
    values: dict[str, Any] = {
        "name": "plan",
        "num_nodes": plan.sharding.nodes if plan.sharding else 1,
        "resources": resources,
        "workdir": ".",
        "envs": {"RUN": "training"},
        "secrets": {"HF_TOKEN": ""},
        "setup": _setup(plan),
        "run": _run(plan),
    }
    if bucket := _bucket(plan):
        values["file_mounts"] = {"/checkpoints": {"source": bucket, "mode": "MOUNT_CACHED"}}
    return values


def _card(plan: PlanFile) -> str:
    return CARDS.get(plan.gpu) or find_gpu(plan.gpu).label.split(" (")[0].replace(" ", "")


def _bucket(plan: PlanFile) -> str:
    return plan.hand_over.checkpoints if _BUCKET.fullmatch(plan.hand_over.checkpoints) else ""


def _setup(plan: PlanFile) -> str:
    lines = ["set -e", "python3 -m venv ~/environment", "~/environment/bin/pip install -r requirements.txt"]
    if plan.job.attention_used == "flash":
        lines.append(f"~/environment/bin/pip install --no-build-isolation {FLASH}")
    return "\n".join(lines) + "\n"


def _run(plan: PlanFile) -> str:
    kept = "/checkpoints" if _bucket(plan) else "~/checkpoints"
    start = "python train.py"
    if plan.sharding:
        start = "accelerate launch --config_file accelerate.yaml"
        if plan.sharding.nodes > 1:
            start += ' --machine_rank "$SKYPILOT_NODE_RANK" --main_process_ip "$(echo "$SKYPILOT_NODE_IPS" | head -n1)"'
        start += " train.py"
    return (
        "set -e\n. ~/environment/bin/activate\n"
        'if [ "$RUN" = pilot ]; then steps="--max-steps 20"; else steps=""; fi\n'
        f'out={kept}/"$RUN"\n'
        f'{start} --data rows.jsonl --output "$out" $steps\n'
        'if [ "$SKYPILOT_NODE_RANK" = 0 ]; then\n'
        '  mkdir -p ~/record && cp "$out"/trainer_state.json "$out"/train_results.json "$out"/environment.json ~/record/\nfi\n'
    )


def _own_notes(plan: PlanFile) -> list[str]:
    found = [*notes(plan), "what train.py does otherwise stands in its own header"]
    if plan.offer is None:
        found.append("no offer is chosen in the plan: SkyPilot takes the cheapest machine with the card")
    elif plan.offer[0] not in CLOUDS:
        found.append(
            f"the offer of {plan.offer[0]} is chosen, which SkyPilot does not rent: it takes the cheapest machine with the card"
        )
    if plan.gpu not in CARDS:
        found.append(f"{plan.gpu}: sky show-gpus lists the name that SkyPilot has for it")
    if not _bucket(plan):
        found.append("hand_over.checkpoints names no bucket (s3://, gs://, ...): with the machine its checkpoints are lost")
    if plan.care.region and "infra" in (values := _values(plan)["resources"]) and "/" not in values["infra"]:
        found.append(f"region {plan.care.region!r} is not in infra: it is not written as a cloud writes its own")
    if plan.care.own_machines and plan.offer is None:
        found.append("the data are personal: choose an offer of a provider's own machines first")
    if plan.policy.kept_days:
        found.append("kept_days: the bucket keeps what is in it; the machine's disk goes with sky down")
    return found
