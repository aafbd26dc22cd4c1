"""Care for the data: where copies of them arise, how each is deleted, and a checklist of what is settled.

What is settled changes the plan: see `PlanFile.cared_wishes`, which offers must meet.
"""

from typing import NamedTuple

from planner.delivery import DeliveryAssumptions
from planner.plan import Note
from planner.planfile import PlanFile
from planner.storage import storage

__all__ = ["Check", "Copy", "checklist", "copies", "transfer_s"]

# What deletes a disk that outlives its machine. Source: the providers' command references (2026-12).
_DELETE_DISK = {
    "aws": "aws ec2 delete-volume --volume-id VOLUME",
    "azure": "az disk delete --resource-group GROUP --name DISK",
    "gcp": "gcloud compute disks delete DISK",
    "oci": "oci bv volume delete --volume-id VOLUME",
}
_CACHE = "~/.cache/huggingface/datasets"
_LOGS, _OWNER = "delete the folder, and the run in the tracker", "as its owner decides"
_CONSOLE = "delete it in the provider's console, with its snapshots"
_MACHINE = "sky down CLUSTER, or terminate the machine: its local disk goes with it"


class Copy(NamedTuple):
    """One place where the data, or what was learnt from them, lie; bytes, and what deletes it."""

    what: str
    where: str
    bytes: float
    delete: str


def transfer_s(plan: PlanFile, assumptions: DeliveryAssumptions | None = None) -> float:
    """How long the data take to reach the machine: their bytes at the rate of an office line, unless the plan sets the stage."""
    moved = storage(plan.job, plan.workload, plan.policy, plan.sharding).dataset_bytes
    return dict(plan.changed_stages).get("data transfer", moved / (assumptions or DeliveryAssumptions()).upload.value)


class Check(NamedTuple):
    """One line of the checklist; `settled` is None where nothing is asked of data of this kind."""

    name: str
    settled: bool | None
    note: Note


def copies(plan: PlanFile) -> tuple[Copy, ...]:
    """Where copies arise, in the order in which they do. A model that was trained on the data is one: it can give parts of them away."""
    disk = storage(plan.job, plan.workload, plan.policy, plan.sharding)
    sizes = {line.name: float(line.bytes) for line in disk.lines}
    saved = plan.hand_over.checkpoints or "the machine's disk"
    volume = (
        _MACHINE if plan.policy.disk in ("NVMe", "SATA SSD") else _DELETE_DISK.get(plan.offer[0] if plan.offer else "", _CONSOLE)
    )
    bucket = "aws s3 rm --recursive s3://BUCKET/RUN"
    return (
        Copy("dataset", "the machine's disk", sizes["dataset"], "rm -r DATA"),
        Copy("token cache", _CACHE, sizes["token cache"], f"rm -r {_CACHE}"),
        Copy("checkpoints", saved, sizes["checkpoints"], bucket if "://" in saved else "rm -r OUTPUT"),
        Copy("logs", "trainer logs, experiment trackers, the pilot's folder", 0.0, _LOGS),
        Copy("finished model", plan.hand_over.result or saved, disk.result_bytes, _OWNER),
        Copy("disk", plan.policy.disk, disk.peak_bytes, volume),
    )  # fmt: skip


def checklist(plan: PlanFile) -> tuple[Check, ...]:
    """What care for data of this kind asks for, and whether the plan settles it."""
    care, personal = plan.care, plan.care.own_machines

    def asked(settled: bool, *, of_all: bool = False) -> bool | None:
        """What is asked of personal data only is open there where it is not settled; elsewhere it counts where it is."""
        return settled if personal or of_all else (settled or None)

    places = ", ".join(filter(None, (*care.providers, care.region)))
    transfer, disk = ("encrypted" if yes else "not encrypted" for yes in (care.encrypted_transfer, care.encrypted_disk))
    return (
        Check("classification", True, Note(care.classification, {})),
        Check("places", asked(bool(places)), _words(places)),
        Check("machines", personal or None, Note("of the provider itself only" if personal else "of anyone", {})),
        Check("transfer", asked(care.encrypted_transfer, of_all=care.classification != "public"), Note(transfer, {})),
        Check("disk", asked(care.encrypted_disk), Note(disk, {})),
        Check("access", asked(bool(care.access)), _words(", ".join(care.access))),
        Check("deletion", asked(bool(care.deletion)), _words(care.deletion)),
        Check("deleted", asked(bool(care.deleted)), Note("{count} deletions recorded", {"count": len(care.deleted)})),
    )


def _words(text: str) -> Note:
    return Note("{words}", {"words": text or "–"})
