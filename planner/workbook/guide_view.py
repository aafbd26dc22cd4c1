"""The guided view: three questions, one answer in plain words, and the same plan in the engineers' view one click away."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from html import escape
from typing import Any

import ipywidgets as widgets

from planner.architecture import Architecture
from planner.catalogues import find_model, load_gpus, load_providers
from planner.guide import GOALS, Guided, guided
from planner.guide_sentences import GLOSSARY, answer_lines, risk_lines
from planner.planfile import PlanFile
from planner.prices import current_offers
from planner.texts import translated
from planner.units import format_count, format_number
from planner.workbook.page_html import box, folded, relabel

__all__ = ["GuideView"]

MODELS = {
    "Qwen/Qwen2.5-1.5B": "Very small", "meta-llama/Llama-3.2-3B": "Small", "meta-llama/Llama-3.1-8B": "Middle-sized, the usual first choice",
    "Qwen/Qwen2.5-14B": "Large", "Qwen/Qwen2.5-32B": "Very large", "meta-llama/Llama-3.1-70B": "The largest that a small team trains",
}  # fmt: skip
EXAMPLES = {500: "a first try", 2_000: "", 10_000: "", 50_000: "", 200_000: "much"}
GOAL_NAMES = {"cheapest": "That it is cheap", "soonest": "That it is done soon", "safest": "That nothing goes wrong"}


class GuideView(widgets.VBox):
    """The questions' values are the only state. `on_open` takes the plan to the other views."""

    def __init__(self, *, language: str, on_open: Callable[[PlanFile], None]) -> None:
        self._on_open = on_open
        self.found: Guided | None = None
        self.model = widgets.Dropdown(options=list(MODELS), value="meta-llama/Llama-3.1-8B")
        self.examples = widgets.Dropdown(options=list(EXAMPLES), value=10_000)
        self.goal = widgets.Dropdown(options=GOALS)
        self.heading, self.answer, self.words = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.answer.add_class("planner-live")
        self.more = widgets.Button()
        self.more.on_click(lambda _button: self._on_open(self.found.plan) if self.found else None)
        for question in (self.model, self.examples, self.goal):
            question.observe(self._on_question, names="value")
        questions = box("planner-card", self.heading, self.model, self.examples, self.goal)
        super().__init__([questions, box("planner-card", self.answer, self.more), box("planner-card", self.words)])
        self._quiet = False
        self.translate(language)

    def _on_question(self, _change: Any) -> None:
        if not self._quiet:
            self.draw()

    def translate(self, language: str) -> None:
        """Everything in one language; the answer is drawn when it is looked at."""
        self._language, say = language, partial(translated, language=language)
        self.heading.value = f"<h2>{escape(say('Three questions, one answer'))}</h2>"
        rows = say("{count} examples of about a page")
        options: tuple[tuple[widgets.Dropdown, str, list[tuple[str, Any]]], ...] = (
            (self.model, "Which model?", [(_model_text(find_model(name), words, language), name) for name, words in MODELS.items()]),
            (
                self.examples, "How much data?",
                [(": ".join(filter(None, (rows.format(count=format_number(n, language=language)), words and say(words)))), n)
                 for n, words in EXAMPLES.items()],
            ),
            (self.goal, "What matters most?", [(say(words), goal) for goal, words in GOAL_NAMES.items()]),
        )  # fmt: skip
        self._quiet = True
        for control, label, choices in options:
            relabel(control, choices)
            control.description = say(label)
        self._quiet = False
        self.more.description = say("Open this plan with all its numbers")
        terms = "".join(f"<dt>{escape(say(word))}</dt><dd>{escape(say(text))}</dd>" for word, text in GLOSSARY.items())
        self.words.value = folded(say("The words, explained"), f"<dl class='planner-glossary'>{terms}</dl>")

    def draw(self) -> None:
        """Answer the questions as they stand."""
        language, today = self._language, datetime.now(UTC).date()
        say = partial(translated, language=language)
        if None in (self.model.value, self.examples.value, self.goal.value):
            return
        architecture = find_model(self.model.value)
        self.found = guided(
            architecture, self.examples.value, self.goal.value, current_offers().offers, load_providers(), load_gpus()
        )
        self.more.disabled = self.found is None
        title = f"<h2>{escape(say('The answer'))}</h2>"
        if self.found is None:
            line = say("None of the offers holds this model. Choose a smaller one, or open the engineers' view.")
            self.answer.value = f"{title}<p>{escape(line)}</p>"
            return
        rows = "".join(
            f"<div class='planner-answer'><dt>{escape(name)}</dt><dd>{with_terms(text, language)}</dd></div>"
            for name, text in answer_lines(self.found, language)
        )
        risks = "".join(f"<li>{with_terms(line, language)}</li>" for line in risk_lines(self.found, today, language))
        self.answer.value = f"{title}<dl>{rows}</dl><h3>{escape(say('What could go wrong'))}</h3><ul>{risks}</ul>"


def with_terms(text: str, language: str) -> str:
    """The text as HTML; a word of the glossary shows its meaning where the mouse or the focus is on it."""
    words = {translated(word, language): translated(meaning, language) for word, meaning in GLOSSARY.items()}
    longest = "|".join(re.escape(escape(word)) for word in sorted(words, key=len, reverse=True))

    def term(match: re.Match[str]) -> str:
        word = match[0]
        return f"<span class='planner-term' tabindex='0'>{word}<span role='tooltip'>{escape(words[word])}</span></span>"

    return re.sub(rf"\b(?:{longest})\b", term, escape(text))


def _model_text(architecture: Architecture, words: str, language: str) -> str:
    sized = translated("{count} parameters", language).format(count=format_count(architecture.num_params, language=language))
    return f"{translated(words, language)}: {architecture.name.split('/')[-1]}, {sized}"
