"""A dry run in words and tables, with the closed form of the same job beside it."""

from functools import partial

from planner.dryrun.compare import Compared, by_component, by_instant, by_level
from planner.dryrun.summary import DryRunSummary
from planner.figures import COMPONENT_NAMES, INSTANT_NAMES
from planner.plan import Plan
from planner.sentences import cards_text, peak_verdict
from planner.tables import Table
from planner.texts import translated
from planner.units import format_gib, format_number, format_share

__all__ = ["components_table", "dry_verdict_text", "instants_table", "peak_text", "run_text"]

_LEVEL_NAMES = {"allocated": "peak, allocated", "reserved": "peak, reserved", "device": "peak, on the card"}


def dry_verdict_text(plan: Plan, found: DryRunSummary, language: str) -> str:
    """One sentence: whether the step runs through on the plan's card, and where it stops if not."""
    gib, say = partial(format_gib, language=language), partial(translated, language=language)
    gpu, ran_out = plan.gpu, found.ran_out
    if ran_out is not None:
        line = "Runs out of memory on {gpu} ({moment}): {asker} asks for {requested} with {allocated} allocated, {cached} cached, {free} free."
        stops = say(line).format(
            gpu=gpu.label, moment=", ".join(say(part) for part in (ran_out.step, ran_out.phase) if part), asker=ran_out.asked_by,
            requested=gib(ran_out.requested_bytes), allocated=gib(ran_out.allocated_bytes), cached=gib(ran_out.cached_bytes),
            free=gib(ran_out.free_bytes),
        )  # fmt: skip
        if found.verdict == "does not fit":
            return stops
        return f"{peak_verdict(found.verdict, found.peak, gpu, language, cards=cards_text(plan, language))} {stops}"
    if found.peak.device > gpu.usable_memory_bytes:
        line = "Tight on {gpu}: the step runs through only as the allocator gives back what it cached; else it takes {device}."
        return say(line).format(gpu=gpu.label, device=gib(found.peak.device))
    return peak_verdict(found.verdict, found.peak, gpu, language, cards=cards_text(plan, language))


def peak_text(plan: Plan, found: DryRunSummary, language: str) -> str:
    """The dry run's peak, and how far the closed form is from it."""
    gib, memory = partial(format_gib, language=language), plan.memory
    level = by_level(memory, found)[0]
    line = "Fullest at: {instant}, with {size} allocated; the closed form has {closed} ({difference})."
    text = translated(line, language).format(
        instant=translated(INSTANT_NAMES[found.peak.instant], language), size=gib(found.peak.allocated),
        closed=gib(memory.peak.allocated), difference=_difference(level, language),
    )  # fmt: skip
    if memory.peak.instant not in found.allocated_at:
        line = " The closed form's is at: {instant}, which a dry run does not pass through."
        text += translated(line, language).format(instant=translated(INSTANT_NAMES[memory.peak.instant], language))
    return text


def run_text(plan: Plan, found: DryRunSummary, language: str) -> str:
    """What was run: blocks, versions, time, and the memory that it took on this machine."""
    count, layers = partial(format_number, language=language), plan.job.architecture.num_hidden_layers
    line = "Run with {versions}: {blocks} of {layers} blocks in {seconds} s."
    text = translated(line, language).format(
        versions=", ".join(f"{name} {version}" for name, version in found.versions.items()), blocks=count(found.traced_blocks),
        layers=count(layers), seconds=count(found.seconds),
    )  # fmt: skip
    if found.host_peak_bytes:
        size = format_gib(found.host_peak_bytes, language=language)
        text += translated(" It took {size} of this machine's own memory.", language).format(size=size)
    return text


def components_table(plan: Plan, found: DryRunSummary, language: str = "en") -> Table:
    """What is alive at the dry run's peak, component by component."""
    return _table(translated("Component", language), COMPONENT_NAMES, by_component(plan.memory, found), language)


def instants_table(plan: Plan, found: DryRunSummary, language: str = "en") -> Table:
    """Allocated memory at each instant, and the three levels of the peak."""
    rows = [*by_instant(plan.memory, found), *by_level(plan.memory, found)]
    return _table(translated("Instant", language), INSTANT_NAMES | _LEVEL_NAMES, rows, language)


def _table(first: str, names: dict[str, str], rows: list[Compared], language: str) -> Table:
    say = partial(translated, language=language)

    def size(value: float | None) -> str:
        return "–" if value is None else format_gib(value, language=language)

    return Table(
        (first, say("Closed form"), say("Dry run"), say("Difference")),
        tuple((say(names[row.name]), size(row.closed_form), size(row.dry_run), _difference(row, language)) for row in rows),
    )


def _difference(row: Compared, language: str) -> str:
    return "–" if row.difference is None else format_share(row.difference, language=language)
