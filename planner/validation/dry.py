"""Dry runs of published rows: two processes at a time, and a cache that a second call goes on from."""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner.errors import InvalidJob, PlannerError
from planner.files import write_whole
from planner.memory import Peak
from planner.validation.published import Published

__all__ = ["default_cache", "dry_run_peaks"]

_VERSION = 2  # of what is stored


def default_cache() -> Path:
    """In the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("finetune-planner") / "validate"


def _key(run: Published) -> str:
    card = run.gpu.id if run.gpu else "a100-sxm4-80"
    asked = [_VERSION, run.job.model_dump(mode="json"), card, asdict(run.sharding) if run.sharding else None]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def refused(run: Published) -> InvalidJob | None:
    """Why the installed libraries cannot run the row's stack."""
    job = run.job
    if job.stack_row.own_models:
        return InvalidJob("{stack} has models of its own, which the dry run does not have", stack=job.stack_row.label)
    if job.quantization == "gptq":
        return InvalidJob("the dry run has no GPTQ layers")
    if not job.architecture.config_json or job.architecture.source.startswith("config.json, as published"):
        return InvalidJob("no class of transformers has this model's own code")
    if job.experts_as_linears:
        return InvalidJob("transformers 5 has fused experts, the run had linears")
    if run.sharding and (run.sharding.fsdp_version == 1 or run.sharding.kind.startswith("zero")):
        return InvalidJob("the dry run has FSDP2 and DDP only")
    return None


def dry_run_peaks(
    runs: list[Published],
    cache: Path,
    *,
    processes: int = 2,
    report: Callable[[int, int, str], None] = lambda done, of, name: None,
) -> dict[str, Peak | PlannerError]:
    """Peak, or why there is none, by the row's id. What is in the cache is not run again; each result is stored as it comes."""
    found: dict[str, Peak | PlannerError] = {}
    waiting: dict[str, list[Published]] = {}
    for run in runs:
        if reason := refused(run):
            found[run.id] = reason
            continue
        key = _key(run)
        stored = _stored(cache / f"{key}.json")
        if stored is None:
            waiting.setdefault(key, []).append(run)
        else:
            found[run.id] = stored
    done = 0

    def work(item: tuple[str, list[Published]]) -> None:
        nonlocal done
        key, same = item
        answer = _answer(same[0])
        _store(cache / f"{key}.json", answer)
        found.update(dict.fromkeys((run.id for run in same), answer))
        done += 1
        report(done, len(waiting), same[0].id)

    with ThreadPoolExecutor(processes) as pool:  # each thread waits for a process of its own
        list(pool.map(work, waiting.items()))
    return found


def _answer(run: Published) -> Peak | PlannerError:
    import asyncio

    from planner.catalogues import find_gpu
    from planner.dryrun.process import dry_run_in_process

    try:
        result = asyncio.run(dry_run_in_process(run.job, run.gpu or find_gpu("a100-sxm4-80"), sharding=run.sharding))
    except PlannerError as error:
        return error
    return result.peak


def _stored(path: Path) -> Peak | PlannerError | None:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return InvalidJob(document["refused"], **document["values"]) if "refused" in document else Peak(**document)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _store(path: Path, answer: Peak | PlannerError) -> None:
    if isinstance(answer, Peak):
        document: dict[str, Any] = {
            name: value if isinstance(value, str) else float(value) for name, value in answer._asdict().items()
        }
    else:
        document = {"refused": answer.template, "values": answer.values}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(document, default=str).encode())
