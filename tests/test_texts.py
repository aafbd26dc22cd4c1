"""Every sentence that can be shown exists in Turkish, with the same values in it."""

import ast
import string
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner import (
    care,
    comparison,
    dataset_views,
    figures,
    guide,
    offer_views,
    pilot_views,
    plan_views,
    record_views,
    sentences,
    tables,
    texts,
    timeline,
    validation_views,
)
from planner.catalogues import data_folder
from planner.cli import planner
from planner.dataset.examples import _FORMATS
from planner.dataset.tokens import ESTIMATED
from planner.delivery import STAGES
from planner.dryrun.process import LOADING
from planner.dryrun.turns import WAITING
from planner.errors import _BOUNDS, _KINDS
from planner.guide_sentences import GLOSSARY
from planner.pilot.compare import DURING as PILOT_DURING
from planner.pilot.compare import NAMES as PILOT_NAMES
from planner.pilot.compare import VERDICTS as PILOT_VERDICTS
from planner.ranking import ASKED
from planner.remedies import Remedy
from planner.storage import DISK_BYTES_PER_S
from planner.texts import LANGUAGES, translated
from planner.turkish import TURKISH
from planner.validate_command import read_rows
from planner.validation.published import QUANTITIES
from planner.validation.report import GROUPS, Judged, grouped, judged
from planner.visitors import FULL

PACKAGE = Path(figures.__file__).parent
# Calls whose first string is shown; for `titles` and `Remedy` all strings are.
SHOWN_FIRST = {
    "translated",
    "say",
    "Note",
    "BadRow",
    "InvalidJob",
    "HubUnavailable",
    "PlannerError",
    "Line",
    "BillLine",
    "StorageLine",
    "TimeLine",
    "add",
    "Saved",
    "__init__",
    "_sentence",
    "RowProblem",
    "progress",
}
SHOWN_ALL = {"titles", "Copy"}
STEPS = ("step 1", "step 2")
# Looked up under a name that the code puts together; the test that draws everything in Turkish finds what is missing here.
CALLED = (
    "Cheapest", "Fastest", "Written to", "Provider", "RAM", "disk", "network between machines", "peak rate", "memory bandwidth",
    "model on its first rank", "about {date}, up to {days} days old", "{date}, {days} days old", "machine is paid", "adapter", "weights",
    "encrypted", "not encrypted", "settled", "not asked", "not measured", "Made", "Model", "Data", "Card", "Seed", "Evaluation", "Files",
    "Tokenizer", "Environment",
    "Runs", "What changed between the last two", "What it came to", "Learning rate", "Checkpoints", "Result",
    "Check of the result", "closed form, each publisher left out", "rows",
    "median error", "90th percentile", "bias", "in the 90 % band", "all, at the level published", "device", "unspecified",
    "{stage} is held back by {what} ({measure}: {value})",
    "nothing measured holds {stage} back ({measure}: {value})",
    "base and adapter being merged", "optimizer states and master weights", "reserved", "on the card", "share of the peak rate",
)  # fmt: skip


def _assigned(node: ast.Assign) -> set[str]:
    names = [part for target in node.targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return {name.id for name in names if isinstance(name, ast.Name)}


def _calls(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            literals = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if name == "_add":
                found += literals[1:2]
            elif name in SHOWN_ALL:
                found += [text for text in literals if not text.startswith("rm ")]
            elif (
                name in SHOWN_FIRST
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                found.append(node.args[0].value)
            elif name == "progress" and isinstance(node.args[0], ast.JoinedStr):  # f"{step}: what it does"
                found += [f"{step}{node.args[0].values[-1].value}" for step in STEPS]
            elif name in SHOWN_FIRST and node.args and isinstance(node.args[0], ast.IfExp):
                found += [side.value for side in (node.args[0].body, node.args[0].orelse) if isinstance(side, ast.Constant)]
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and _assigned(node) & {"template", "line", "name", "prefix"}
        ):
            found.append(node.value.value)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp) and "name" in _assigned(node):
            for side in (node.value.body, node.value.orelse):
                first = side.elts[0] if isinstance(side, ast.Tuple) else side
                found += [first.value] if isinstance(first, ast.Constant) else []
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and _assigned(node) & {"lacking", "lines", "tiles"}:
            found += [
                row.elts[0].value
                for row in node.value.elts
                if isinstance(row, ast.Tuple) and isinstance(row.elts[0], ast.Constant)
            ]
        if (
            isinstance(node, ast.Yield)
            and isinstance(node.value, ast.Tuple)
            and len(node.value.elts) == len(Remedy.__dataclass_fields__) - 2
            and isinstance(node.value.elts[0], ast.Constant)
        ):
            found += [part.value for part in node.value.elts if isinstance(part, ast.Constant)]
    return found


def shown() -> set[str]:
    """All English sentences of the package that a reader can meet."""
    from planner.workbook import (
        app,
        controls,
        dryrun_card,
        guide_view,
        memory_view,
        offer_controls,
        page_html,
        pilot_card,
        pilot_controls,
        plan_controls,
    )

    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name != "serve.py" and path.parent.name != "catalogues":
            found += _calls(ast.parse(path.read_text(encoding="utf-8")))
    found += [*figures.COMPONENT_NAMES.values(), *figures.INSTANT_NAMES.values(), *figures._FIELD_NAMES.values(), figures.RUNTIME]
    found += [name for name, _, _ in figures.PARTS]
    found += [*timeline.PHASE_NAMES.values(), *comparison._LEVEL_NAMES.values(), *STEPS, LOADING, WAITING, dryrun_card.CANCELLED]
    found += [
        *sentences.METHOD_NAMES.values(),
        *sentences.VERDICTS.values(),
        *sentences.OUTCOMES.values(),
        *sentences.OFFLOADS.values(),
        *sentences.SHARDING_NAMES.values(),
        *tables.SEGMENT_NAMES.values(),
        *_BOUNDS.values(),
        *_KINDS.values(),
    ]
    for label, choices in controls._CHOICES.values():
        found += [label, *choices.values()]
    found += (
        [label for label, _ in controls._SLIDERS.values()]
        + [*controls._SWITCHES.values()]
        + [title for title, _ in controls._GROUPS]
    )
    found += [*page_html.PILLS, app._TITLE, *memory_view.CHART_TITLES.values(), "LoRA dropout"]
    found += [*pilot_controls.MODES.values(), *pilot_controls.LABELS.values(), *pilot_controls.PLACEHOLDERS.values()]
    found += [*app.STATES.values(), *guide_view.MODELS.values(), *guide_view.EXAMPLES.values(), *guide_view.GOAL_NAMES.values()]
    found += [*GLOSSARY, *GLOSSARY.values(), "Which model?", "How much data?", "What matters most?"]
    found += [FULL, pilot_card.ENDING, pilot_card.COMPARING]
    found += [*offer_controls._NUMBERS.values(), *offer_controls._SWITCHES.values(), *app.VIEWS.values()]
    found += [label for label, _, _ in offer_controls._SLIDERS.values()] + [title for title, _ in offer_controls._GROUPS]
    found += [
        *STAGES,
        *DISK_BYTES_PER_S,
        *ASKED.values(),
        *PILOT_NAMES.values(),
        *PILOT_VERDICTS,
        *PILOT_DURING.values(),
        *pilot_views.PHASE_NAMES.values(),
        offer_views._PAID,
        offer_views._NOT_PAID,
        *CALLED,
    ]
    found += [*dataset_views.FILE_FORMATS.values(), *(name for name, _, _ in _FORMATS), *ESTIMATED]
    for names in (plan_views.STEP_NAMES, plan_views.STATES, plan_views.CRITERIA, plan_views.CLASSES, plan_views._CHECKS):
        found += names.values()
    for names in (record_views.BOTTLENECKS, record_views._STAGES, record_views._MEASURES, record_views._OUTCOMES):
        found += names.values()
    for names in plan_controls.FIELDS.values():
        found += names.values()
    found += [care._LOGS, care._OWNER, care._CONSOLE, care._MACHINE]
    found += [
        *validation_views._COLUMNS,
        *validation_views._SUMMED.values(),
        *QUANTITIES,
        *GROUPS,
        "issue threads",
        "not named",
        "card unknown",
    ]
    for kind in ("model", "GPU", "provider"):
        found += [f"no {kind} named {{name!r}}; did you mean {{near}}?", f"no {kind} named {{name!r}}"]
    found.append("no GPU named {name!r}, but several whose name holds it; which one: {candidates}?")
    return {text.removeprefix("one block: ") or text for text in found if any(c.isalpha() for c in text)}


def _values(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def test_every_sentence_that_can_be_shown_has_a_turkish_one() -> None:
    assert sorted(shown() - TURKISH.keys()) == []


def test_no_turkish_sentence_is_left_over() -> None:
    assert sorted(TURKISH.keys() - shown()) == []


def test_no_sentence_is_translated_twice() -> None:
    found: list[str] = []
    for path in (PACKAGE / "turkish").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found += [key.value for key in node.keys if isinstance(key, ast.Constant)] if isinstance(node, ast.Dict) else []
    assert sorted({text for text in found if found.count(text) > 1}) == []


@pytest.mark.parametrize("english", sorted(TURKISH))
def test_both_languages_fill_in_the_same_values(english: str) -> None:
    assert _values(TURKISH[english]) == _values(english)


def test_a_sentence_is_translated_and_english_stays() -> None:
    assert translated("weights", "tr") == "ağırlıklar"
    assert translated("weights", "en") == "weights"
    assert LANGUAGES == ("en", "tr")


class Recorded(dict[str, str]):
    """The Turkish sentences, and what was looked up and is not there."""

    def __init__(self) -> None:
        super().__init__(TURKISH)
        self.missing: set[str] = set()

    def get(self, english: str, default: Any = None) -> Any:
        if english not in self:
            self.missing.add(english)
        return super().get(english, default)


# Names of cards and marks, which are the same in both languages.
SAME = {"", "A100 80 GB", "H100", "RTX 4090"}


def test_validate_answers_in_turkish(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_rows(data_folder() / "measurements.csv")
    found = [row for row in judged(rows) if isinstance(row, Judged)]
    recorded = Recorded()
    monkeypatch.setattr(texts, "TURKISH", recorded)
    answer = CliRunner().invoke(planner, ["validate", str(data_folder() / "measurements.csv"), "--language", "tr"])
    assert answer.exit_code == 0 and "atlandı" in answer.output and "%90 bandında" in answer.output
    assert recorded.missing <= {name for names in grouped(found).values() for name in names}  # cards, methods, publishers
    refused = CliRunner().invoke(planner, ["validate", "none.csv", "--language", "tr"])
    assert refused.exit_code == 2 and "okunamıyor" in refused.output


@pytest.mark.slow
def test_all_that_the_guide_looks_up_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.workbook import Workbook

    recorded = Recorded()
    monkeypatch.setattr(texts, "TURKISH", recorded)
    app = Workbook(view="guide", language="tr")
    for goal in guide.GOALS:
        app.guide.goal.value = goal
    assert recorded.missing <= SAME


def test_all_that_the_offers_view_looks_up_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.workbook import Workbook

    recorded = Recorded()
    monkeypatch.setattr(texts, "TURKISH", recorded)
    app = Workbook(view="offers", language="tr")
    controls = app.offers.controls.by_field
    for field, value in (
        ("spot", True), ("deadline_hours", "3"), ("budget_usd", "2"), *((name, True) for name in ASKED), ("provider", "aws"),
        ("global_batch_size", 4), ("deadline_hours", "x"), ("interruptions_per_hour", 0),
    ):  # fmt: skip
        controls[field].value = value
    other = Workbook(view="offers", language="tr")
    other.offers.controls.by_field["global_batch_size"].value = 64
    for field, value in (("method", "full"), ("optimizer", "adamw-8bit"), ("method", "lora"), ("save", "merged")):
        other.controls.by_field[field].value = value
    assert recorded.missing <= SAME
