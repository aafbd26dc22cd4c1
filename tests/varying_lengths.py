"""What rows of varying length leave in the allocator's cache: `python tests/varying_lengths.py swift-bm-063 [40]`, a row and micro-batches.

Each micro-batch is the dry run of the row's job at a length drawn anew; all go through one allocator, one after the other. Optimizer steps
are left out but the first. The lengths are those of ms-swift's benchmark (cls-fudan-news-zh: mean 3,234, standard deviation 2,548, rows
beyond the limit are dropped), as a gamma distribution, which is assumed.
"""

import csv
import json
import random
import sys
from functools import cache

from planner.catalogues import data_folder
from planner.dryrun import dry_run
from planner.dryrun.allocator import CachingAllocator
from planner.dryrun.log import EventLog
from planner.families import architecture_from_config
from planner.job import Job
from planner.units import format_gib
from planner.validation.published import Published, published_run

MEAN, DEVIATION, SHORTEST = 3234, 2548, 64


def job_of(run: Published) -> Job:
    """The run's job, with transformers' own class where the model's was its publisher's."""
    a, fields = run.job.architecture, {}
    if a.source.startswith("config.json, as published"):
        plain = architecture_from_config(json.loads(a.config_json), name=a.name)
        fields = {
            "architecture": plain,
            "target_modules": plain.qkv_names if run.job.method != "full" else run.job.target_modules,
        }
    return run.job.changed(gradient_accumulation_steps=1, varying_lengths=False, **fields)


def lengths(job: Job, count: int) -> list[int]:
    """The longest row of each micro-batch."""
    draw, found = random.Random(1), list[int]()
    while len(found) < count * job.micro_batch_size:
        length = int(draw.gammavariate((MEAN / DEVIATION) ** 2, DEVIATION**2 / MEAN))
        if SHORTEST <= length <= job.sequence_length:
            found.append(length)
    return [max(found[i::count]) for i in range(count)]


def play(allocator: CachingAllocator, log: EventLog, start: int, end: int, *, transient: bool) -> None:
    """Events of a log through the allocator; of a later micro-batch only what is born and dies within it."""
    events, addresses = log.events[start:end], dict[int, int | None]()
    both = {~event for event in events if event < 0} & set(events)
    for event in events:
        if event >= 0 and (event in both or not transient):
            addresses[event] = allocator.malloc(log.allocations[event].bytes)
        elif event < 0 and (address := addresses.pop(~event, None)) is not None:
            allocator.free(address)


def main(name: str, count: int) -> None:
    with (data_folder() / "measurements.csv").open(encoding="utf-8") as file:
        (run,) = (run for run in map(published_run, csv.DictReader(file)) if isinstance(run, Published) and run.id == name)
    job = job_of(run)

    @cache
    def log_of(length: int) -> EventLog:
        return dry_run(job.changed(sequence_length=length), run.gpu).log

    allocator, drawn = CachingAllocator(), lengths(job, count)
    for number, length in enumerate(drawn, 1):
        log = log_of(length)
        places = {mark: position for position, mark in log.marks}
        if number == 1:
            play(allocator, log, 0, places["step 2 forward"], transient=False)
        else:
            play(allocator, log, places["step 2 forward"], len(log.events), transient=True)
        print(f"{number:4} {length:6} tokens, reserved {format_gib(allocator.peak_reserved_bytes)}", flush=True)
    print(f"{name}: reserved {format_gib(allocator.peak_reserved_bytes)}, measured {format_gib(run.measured_bytes)}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40)
