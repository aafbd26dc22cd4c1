"""What a plan says, in words of either language: the verdict, what would help, and the names of things."""

from functools import partial

from planner.architecture import Architecture
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Peak
from planner.nodes import Need
from planner.plan import Note, NumBytes, Plan
from planner.remedies import Remedy
from planner.sharding import Sharding
from planner.texts import translated
from planner.units import format_count, format_gib, format_percent, format_share

__all__ = [
    "METHOD_NAMES",
    "OUTCOMES",
    "SHARDING_NAMES",
    "VERDICTS",
    "cards_text",
    "method_name",
    "model_summary",
    "need_text",
    "note_text",
    "note_texts",
    "peak_verdict",
    "remedy_text",
    "sharding_text",
    "verdict_text",
    "what_would_help",
]

METHOD_NAMES = {
    "full": "Full fine-tuning",
    "freeze": "Layer freezing",
    "lora": "LoRA",
    "qlora": "QLoRA",
    "dora": "DoRA",
    "ia3": "IA3",
    "prefix": "Prefix tuning",
    "prompt": "Prompt tuning",
    "p-tuning": "P-tuning",
    "bottleneck": "Bottleneck adapters",
}

VERDICTS = {
    "fits": "Fits {gpu} with {spare} to spare: needs about {device} of {usable}.",
    "tight": "Tight on {gpu}: needs about {device} of {usable}, and up to {high}: nine of ten published runs stayed within that.",
    "too tight": "Tight on {gpu}: needs about {device} of {usable}, probably too much; nine of ten published runs took {low} to {high}.",
    "does not fit": "Does not fit {gpu}: needs about {device}, which is {missing} more than its {usable}.",
}
SHARDING_NAMES = {
    "ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "fsdp": "FSDP", "hybrid": "FSDP, hybrid shard",
    "tensor": "tensor parallel",
}  # fmt: skip
OFFLOADS = {"optimizer": "optimizer states in host memory", "parameters": "parameters and states in host memory"}
OUTCOMES = {True: "then it fits", False: "not enough alone"}


def method_name(job: Job, language: str) -> str:
    """The method's name, with the base's format where it is not what the name says."""
    name = translated(METHOD_NAMES[job.method], language)
    return name if job.quantization == "none" or job.method == "qlora" else f"{name} ({job.quantization})"


def verdict_text(plan: Plan, language: str) -> str:
    """One sentence: fits with how much to spare, tight, or by how much it does not fit."""
    return peak_verdict(plan.verdict, plan.memory.peak, plan.gpu, language, cards=cards_text(plan, language))


def cards_text(plan: Plan, language: str) -> str:
    """The card, or how many of them and how they share the job."""
    if plan.sharding is None:
        return plan.gpu.label
    template = translated("each of {count} {gpu} ({way})", language)
    return template.format(count=plan.sharding.num_gpus, gpu=plan.gpu.label, way=sharding_text(plan.sharding, language))


def sharding_text(sharding: Sharding, language: str) -> str:
    """How GPUs share the job, and what leaves them."""
    name = translated(SHARDING_NAMES[sharding.kind], language)
    if sharding.offload == "none":
        return name
    return f"{name}, {translated(OFFLOADS[sharding.offload], language)}"


def need_text(need: Need, language: str) -> str:
    """Why it takes that many cards."""
    gib = partial(format_gib, language=language)
    missing = -need.alone.headroom_bytes
    if need.refused:
        return need.refused.text(language)
    if need.plan.sharding is None:
        return translated("one card holds it", language)
    if not need.plan.fits:
        template = "{count} cards still lack {missing} each"
        return translated(template, language).format(count=need.num_gpus, missing=gib(-need.plan.headroom_bytes))
    template = "one card lacks {missing}; {way} leaves {device} on each"
    return translated(template, language).format(
        missing=gib(missing), way=sharding_text(need.plan.sharding, language), device=gib(need.plan.memory.peak.device)
    )


def peak_verdict(verdict: str, peak: Peak, gpu: Gpu, language: str, *, cards: str = "") -> str:
    """The sentence of a verdict about any peak, of a closed form or of a dry run."""
    gib = partial(format_gib, language=language)
    usable = gpu.usable_memory_bytes
    template = "too tight" if verdict == "tight" and peak.device > usable else verdict
    return translated(VERDICTS[template], language).format(
        gpu=cards or gpu.label, spare=gib(usable - peak.device), missing=gib(peak.device - usable), device=gib(peak.device), usable=gib(usable),
        high=gib(peak.high), low=gib(peak.low),
    )  # fmt: skip


def remedy_text(remedy: Remedy, language: str) -> str:
    """What to change, what it saves and what it costs, in one line."""
    outcome = OUTCOMES[remedy.plan.fits]
    line = "{action}: saves {saved} ({outcome}). Cost: {cost}."
    return translated(line, language).format(
        action=_capital(translated(remedy.action, language)), saved=format_gib(remedy.saved_bytes, language=language),
        outcome=translated(outcome, language), cost=translated(remedy.cost, language),
    )  # fmt: skip


def what_would_help(found: list[Remedy], language: str) -> str:
    """The changes that make a job fit, each alone, as the end of the verdict; empty where none does."""
    names = [translated(remedy.action, language) for remedy in found if remedy.plan.fits][:3]
    if not names:
        return translated("No single change makes it fit; combine several, or take a larger card.", language) if found else ""
    return translated("Any one of these would make it fit: {changes}.", language).format(changes=", ".join(names))


def note_texts(plan: Plan, language: str) -> list[str]:
    """The plan's notes as sentences."""
    return [_capital(note_text(note, language)) + "." for note in plan.notes]


def note_text(note: Note, language: str) -> str:
    """A note with its values filled in: sizes in GiB, words in the language."""
    shown = {}
    for name, value in note.values.items():
        shown[name] = format_gib(value, language=language) if isinstance(value, NumBytes) else value
        if name in ("what", "name"):
            shown[name] = translated(value, language)
        elif name == "share":
            shown[name] = format_share(value, language=language)
        elif name.endswith("percent"):
            shown[name] = format_percent(value, language=language)
    return translated(note.template, language).format(**shown)


def model_summary(architecture: Architecture, language: str) -> str:
    """Parameters, layers, hidden size, vocabulary: what a person checks a model by."""
    a = architecture
    count = partial(format_count, language=language)
    line = "{params} parameters, {layers} layers, hidden size {hidden}, vocabulary {vocabulary}"
    text = translated(line, language).format(
        params=count(a.num_params), layers=count(a.num_hidden_layers), hidden=count(a.hidden_size), vocabulary=count(a.vocab_size)
    )
    if a.num_experts:
        text += translated(", {active} active per token", language).format(active=count(a.active_params))
    return text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
