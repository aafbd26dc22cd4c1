"""A measured data set in words, as a table, and as a histogram under a sequence length."""

from functools import partial
from math import log10
from typing import Any

from planner.dataset import Profile
from planner.dataset.profile import LengthBar
from planner.figures import Figure
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import format_count, format_gib, format_number, format_percent

__all__ = ["FILE_FORMATS", "dataset_table", "length_histogram", "malformed_table", "profile_texts"]

FILE_FORMATS = {"jsonl": "JSON lines", "csv": "CSV", "parquet": "Parquet", "arrow": "Arrow", "text": "text, a row on each line"}


def profile_texts(profile: Profile, sequence_length: int, language: str = "en") -> list[str]:
    """What there is, how it was counted, what is malformed, and what the sequence length does: a sentence each."""

    def say(template: str, **values: str) -> str:
        return translated(template, language).format(**values)

    number = partial(format_number, language=language)
    kind = ", ".join(translated(name, language) for name in profile.formats) or "–"
    sentences = [
        say(
            "{name}: {rows} usable rows ({kind}; {file_format}), {tokens} tokens, {mean} each on average.",
            name=profile.name, rows=number(profile.rows), kind=kind, file_format=translated(FILE_FORMATS[profile.file_format], language),
            tokens=format_count(profile.tokens, language=language), mean=number(profile.tokens_per_row),
        ),
        counted_text(profile, language),
    ]  # fmt: skip
    if "messages" in profile.formats:
        sentences.append(say("What a chat template puts around each message is not counted: a few tokens more."))
    if profile.malformed_rows:
        first = profile.malformed[0]
        sentences.append(
            say(
                "Malformed rows, left out: {count}; the first is row {row}: {reason}.",
                count=number(profile.malformed_rows), row=number(first.row), reason=first.text(language),
            )
        )  # fmt: skip
    if profile.rows:
        sentences.append(
            say(
                "At {length} tokens, {rows} of the rows are cut and {tokens} of all tokens lost; padded to that length, {padding} of what is "
                "computed is padding; packed, there are {gain} times fewer sequences.",
                length=number(sequence_length), rows=_share(profile.truncated_rows_share(sequence_length), language),
                tokens=_share(profile.truncated_tokens_share(sequence_length), language),
                padding=_share(profile.padding_share(sequence_length), language), gain=number(profile.packing_gain(sequence_length), 1),
            )
        )  # fmt: skip
    return sentences


def counted_text(profile: Profile, language: str = "en") -> str:
    """Whose tokenizer counted the tokens; or that they are an estimate, how, and why."""
    if profile.bytes_per_token is None:
        rate = format_count(profile.tokens_per_s or 0, language=language)
        text = translated("Counted with the tokenizer of {model}, {rate} tokens a second on this machine.", language)
        return text.format(model=profile.model, rate=rate)
    per = profile.bytes_per_token
    value, low, high = (format_number(size, 1, language=language) for size in (per.value, per.low, per.high))
    reason = translated(profile.estimated, language).format(model=profile.model)
    text = translated(
        "Tokens are an estimate, at {value} bytes each ({low} to {high} by language and vocabulary; {source}): {reason}.",
        language,
    )
    return text.format(value=value, low=low, high=high, source=per.source, reason=reason)


def dataset_table(
    profile: Profile, sequence_length: int, micro_batch_size: int = 1, global_batch_size: int = 16, language: str = "en"
) -> Table:
    """Size, lengths, and what the sequence length and the batch do to the data."""
    number, share = partial(format_number, language=language), partial(_share, language=language)
    steps = (profile.steps_per_epoch(sequence_length, global_batch_size, packing=packing) for packing in (False, True))
    unpacked, packed = (number(float(count)) for count in steps)
    lines = (
        ("size", format_gib(profile.file_bytes, language=language)),
        ("usable rows", number(profile.rows)),
        ("malformed rows", number(profile.malformed_rows)),
        ("tokens", format_count(profile.tokens, language=language)),
        ("tokens per row: mean", number(profile.tokens_per_row)),
        ("half of the rows have at most", number(profile.quantile(0.5))),
        ("nine of ten have at most", number(profile.quantile(0.9))),
        ("99 of 100 have at most", number(profile.quantile(0.99))),
        ("the longest has", number(profile.longest_tokens)),
        ("rows cut at the sequence length", share(profile.truncated_rows_share(sequence_length))),
        ("tokens lost by that", share(profile.truncated_tokens_share(sequence_length))),
        ("padding, to the sequence length", share(profile.padding_share(sequence_length))),
        ("padding, to the longest of a micro-batch", share(profile.padding_share(sequence_length, micro_batch_size))),
        ("sequences when packed", number(float(profile.packed_rows(sequence_length)))),
        ("optimizer steps an epoch, unpacked", unpacked),
        ("optimizer steps an epoch, packed", packed),
        ("data version (SHA-256)", profile.sha256[:16]),
    )  # fmt: skip
    return Table(titles(language, "Part", "Value"), tuple((translated(name, language), value) for name, value in lines))


def malformed_table(profile: Profile, language: str = "en") -> Table:
    """The first rows that cannot be used: file, row and reason, and nothing of what they hold."""
    rows = ((each.file, format_number(each.row, language=language), each.text(language)) for each in profile.malformed)
    return Table(titles(language, "File", "Row", "Reason"), tuple(rows))


def length_histogram(profile: Profile, sequence_length: int, language: str = "en") -> Figure:
    """Rows by their length in tokens, with the sequence length as a line; rows that are cut have another colour and hatching."""
    number = partial(format_number, language=language)
    bars = profile.bars(sequence_length)
    spans = [f"{number(bar.above)} – {number(bar.to)}" for bar in bars]
    data = []
    for field, name, colour, shape in zip(("whole", "cut"), titles(language, "whole", "cut"), (1, 6), ("", "/"), strict=True):
        data.append(
            {
                "type": "bar", "name": name, "x": [(bar.above + bar.to) / 2 for bar in bars], "width": [bar.to - bar.above for bar in bars],
                "y": [getattr(bar, field) for bar in bars], "customdata": spans,
                "hovertemplate": "%{customdata}<br>" + name + ": %{y}<extra></extra>",
                "marker": {
                    "color": f"var(--planner-series-{colour})", "pattern": {"shape": shape},
                    "line": {"color": "var(--planner-surface)", "width": 1},
                },
            }
        )  # fmt: skip
    return Figure({"data": data, "layout": _layout(bars, sequence_length, language)}, _alt(profile, sequence_length, language))


def _layout(bars: list[LengthBar], sequence_length: int, language: str) -> dict[str, Any]:
    """A logarithmic axis that holds all bars and the line; few enough ticks for a phone."""
    lowest = min([max(1, bar.above) for bar in bars] + [sequence_length / 2])
    highest = 1.4 * max([bar.to for bar in bars] + [sequence_length])
    powers = [2**power for power in range(28) if lowest <= 2**power <= highest]
    ticks = powers[:: -(-len(powers) // 6)]
    line = {
        "type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": sequence_length, "x1": sequence_length, "layer": "above",
        "line": {"color": "var(--planner-limit)", "width": 1.5, "dash": "dash"},
    }  # fmt: skip
    label = {
        "x": log10(sequence_length), "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False,
        "text": format_number(sequence_length, language=language), "font": {"color": "var(--planner-limit)", "size": 12},
    }  # fmt: skip
    return {
        "bargap": 0, "barmode": "stack", "showlegend": False, "separators": ",." if language == "tr" else ".,", "shapes": [line],
        "annotations": [label],
        "xaxis": {
            "type": "log", "range": [log10(lowest), log10(highest)], "tickvals": ticks, "tickangle": 0,
            "ticktext": [format_number(tick, language=language) for tick in ticks],
            "title": {"text": translated("tokens per row", language), "font": {"size": 13}},
        },
        "yaxis": {"title": {"text": translated("rows", language), "font": {"size": 13}}, "rangemode": "tozero"},
    }  # fmt: skip


def _alt(profile: Profile, sequence_length: int, language: str) -> str:
    number = partial(format_number, language=language)
    template = "Half of the rows have at most {half} tokens, nine of ten at most {ninety}, the longest {longest}; {cut} are longer than {length}."
    return translated(template, language).format(
        half=number(profile.quantile(0.5)), ninety=number(profile.quantile(0.9)), longest=number(profile.longest_tokens),
        cut=_share(profile.truncated_rows_share(sequence_length), language), length=number(sequence_length),
    )  # fmt: skip


def _share(share: Any, language: str) -> str:
    return format_percent(float(share), 1, language=language)
