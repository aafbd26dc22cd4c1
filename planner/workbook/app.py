"""The workbook: controls on the left; verdict, charts, tables and reasons on the right. The same in JupyterLab and Voila."""

import asyncio
import os
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model
from planner.dataset import Profile
from planner.errors import PlannerError
from planner.hub import load_model
from planner.job import Job
from planner.permalink import link_of, plan_of_query
from planner.pilot.calibrate import Calibration
from planner.pilot.record import Measurement
from planner.pilot.run import attached_gpu
from planner.plan import Plan, largest_that_fits, make_plan
from planner.planfile import PlanFile
from planner.ranking import Wishes
from planner.remedies import remedies
from planner.sentences import model_summary
from planner.sharding import Sharding, sharding_of
from planner.texts import translated
from planner.workbook.chart import Page
from planner.workbook.controls import Controls, attention_names
from planner.workbook.data_card import DataCard
from planner.workbook.dryrun_card import DryRunCard
from planner.workbook.guide_view import GuideView
from planner.workbook.memory_view import MemoryView
from planner.workbook.offers_view import OffersView
from planner.workbook.page_html import box, relabel, verdict_html
from planner.workbook.pilot_card import PilotCard
from planner.workbook.plan_view import PlanView
from planner.workbook.runs_card import RunsCard

__all__ = ["Workbook"]

_LANGUAGES = (("English", "en"), ("Türkçe", "tr"))
VIEWS = {"guide": "Three questions", "memory": "Memory", "offers": "Cards and offers", "plan": "Plan and run"}
_MODEL, _GPU = "meta-llama/Llama-3.1-8B", "rtx-4090-24"
_TITLE = "Fine-tuning memory planner"
STATES = {
    "busy": "Computing …",
    "apart": "The connection to the app is lost; trying again. Inputs are off until then.",
    "gone": "This session has ended, so nothing here is computed any more. Your plan is in the page's address.",
    "reload": "Open it again",
}


class Workbook(widgets.VBox):
    """One app. `job()` reads the controls into a Job; `refresh()` draws from it; nothing else holds state.

    `language` is en or tr; `gpu` the id of a card, or attached for this machine's own. `allow_hub` lets a name that is not in
    the catalogue be looked up on the Hugging Face Hub; files on this machine are never read from the search box.
    `allow_dry_run` lets a visitor start a process that takes a processor for half a minute and about 0.5 GiB of memory.
    `allow_refresh` shows a button that fetches today's prices. `allow_pilot` lets a visitor train on the attached GPU. A
    visitor's own file is measured and deleted; `folder` is the one folder of this machine whose rows and weights a visitor's
    measuring and pilots may read. `view` is guide, memory, offers or plan; `plan` is one that was saved, else the one in the page's
    address, as Voila hands it on.
    """

    def __init__(
        self,
        *,
        model: str = _MODEL,
        gpu: str = _GPU,
        language: str = "en",
        allow_hub: bool = False,
        allow_dry_run: bool = True,
        allow_refresh: bool = False,
        allow_pilot: bool = False,
        folder: str | Path | None = None,
        view: str = "memory",
        plan: PlanFile | None = None,
    ) -> None:
        self._allow_hub = allow_hub
        self._opened: PlanFile | None = None  # a plan whose model may be in no catalogue
        self._later: asyncio.TimerHandle | None = None
        self.language = widgets.ToggleButtons(options=_LANGUAGES, value=language)
        self.language.add_class("planner-language")
        if gpu == "attached":
            gpu = own.id if (own := attached_gpu()) else _GPU
        self.controls = Controls(self._on_change, model=model, gpu=gpu)
        self.page = Page(language=language)
        self.heading, self.verdict = widgets.HTML(), widgets.HTML()
        self.dry_run = DryRunCard(self.plan, language=language) if allow_dry_run else None
        self.calibration: Calibration | None = None  # what a pilot measured, where its owner wants the plan to use it
        folder = Path(folder) if folder else None
        self.pilot = (
            PilotCard(self.plan, language=language, on_use=self._use, on_measured=self._measured, folder=folder)
            if allow_pilot
            else None
        )
        self.data = DataCard(self.job, language=language, folder=folder, allow_hub=allow_hub, on_use=self._use_data)
        self.memory = MemoryView(steps=[card for card in (self.dry_run, self.pilot) if card], data=self.data)
        base = PlanFile(job=Job(architecture=find_model(_MODEL)))
        self.steps = PlanView(self._fields, base, language=language, on_open=self.open_plan, on_change=self._soon)
        self.runs = RunsCard(language=language, own=allow_pilot)
        plan_view = box("planner-results", self.steps, self.runs)
        self.offers = OffersView(
            self.plan,
            language=language,
            allow_refresh=allow_refresh,
            calibration=lambda: self.calibration,
            narrowed=self._narrowed,
        )
        self.offers.add_class("planner-results")
        self.guide = GuideView(language=language, on_open=self._open_guided)
        self.guide.add_class("planner-results")
        self.view = widgets.ToggleButtons(options=[(text, name) for name, text in VIEWS.items()], value=view)
        self.view.add_class("planner-view")
        self.view.observe(self._on_view, names="value")
        self.panels = {"guide": self.guide, "memory": self.memory, "offers": self.offers, "plan": plan_view}
        top = box("planner-verdict", self.verdict, self.view)
        self._frame = box("planner-layout", top, self.controls, *self.panels.values())
        super().__init__([self.page, box("planner-header", self.heading, self.language), self._frame])
        self.add_class("planner-app")
        self._on_view(None)
        self.language.observe(self._on_language, names="value")
        self._on_language(None)
        self._open_first(plan)

    def _open_first(self, plan: PlanFile | None) -> None:
        """The plan that was given, else that of the page's address; a damaged link is said, and the page is as without it."""
        try:
            plan = plan or plan_of_query(os.environ.get("QUERY_STRING", ""))
        except PlannerError as error:
            self.controls.show_error("", error.text(self.language.value))
            return
        if plan:
            self.open_plan(plan)

    def open_plan(self, plan: PlanFile) -> None:
        """Set the whole workbook to a plan."""
        self._opened = plan
        self.controls.show(plan.job, plan.gpu, plan.sharding)
        self.offers.controls.show(plan)
        self.offers.picked = plan.offer
        self.steps.show(plan)
        self._on_language(None)

    def _open_guided(self, plan: PlanFile) -> None:
        """The guide's plan, with what was written down so far."""
        with suppress(PlannerError):  # what stands in the other views is no plan
            answered = ("job", "gpu", "sharding", "workload", "wishes", "offer")
            plan = self.plan_file().changed(**{field: getattr(plan, field) for field in answered})
        self.open_plan(plan)
        self.view.value = "memory"

    def plan_file(self) -> PlanFile:
        """All that the workbook says, as one plan. Raises a PlannerError."""
        return self.steps.plan_file()

    def _fields(self) -> dict[str, Any]:
        """What controls other than those of the plan's own view say of a plan."""
        plan = self.plan()
        demand, wishes = self.offers.controls.demand(plan.job), self.offers.controls.wishes()
        return {
            "job": plan.job, "gpu": plan.gpu.id, "sharding": plan.sharding, "workload": demand.workload, "policy": demand.policy,
            "terms": demand.terms, "wishes": wishes, "changed_stages": demand.changed_stages, "prepare_on_gpu": demand.prepare_on_gpu,
            "offer": self.offers.picked,
        }  # fmt: skip

    def _narrowed(self, wishes: Wishes) -> Wishes:
        return self.steps.controls.care().narrowed(wishes)

    def architecture(self) -> Architecture:
        """The model that the controls name. Raises a PlannerError where there is none."""
        if self._opened and self.controls.model_text == self._opened.job.architecture.name:
            return self._opened.job.architecture
        return load_model(self.controls.model_text, allow_files=False, allow_hub=self._allow_hub)

    def job(self) -> Job:
        """The controls as a Job. Raises a PlannerError that says what is wrong."""
        architecture = self.architecture()
        values = self.controls.values(experts=bool(architecture.num_experts))
        if values.get("target_modules") == ("attention",):
            values["target_modules"] = attention_names(architecture)
        return Job(architecture=architecture, **values)

    def plan(self) -> Plan:
        """The plan of the job on the chosen card, or on each of several."""
        job = self.job()
        sharding = sharding_of(job, **self.controls.sharding_values())
        if sharding and self._opened and (kept := self._opened.sharding) and _alike(kept, sharding):
            sharding = kept
        assumptions = self.calibration.memory if self.calibration else None
        return make_plan(job, find_gpu(self.controls.by_field["gpu"].value), assumptions, sharding)

    def refresh(self) -> None:
        """Draw everything for the controls as they stand. Raises a PlannerError and leaves the last good page where it cannot."""
        plan, language = self.plan(), self.language.value
        job, gpu = plan.job, plan.gpu
        experts = bool(job.architecture.num_experts)
        self.controls.show_relevant(experts=experts)
        self.controls.show_error("", "")
        largest = {
            field: largest_that_fits(job, gpu, field, plan.sharding, plan.assumptions)
            for field in ("micro_batch_size", "sequence_length")
        }
        helpful = remedies(job, gpu, plan.sharding, plan.assumptions) if plan.verdict != "fits" else []
        self.verdict.value = verdict_html(plan, helpful, largest, language)
        self._soon()
        self.memory.draw(plan, language)
        summary = (
            f'<p class="planner-hint">{escape(job.architecture.name)}: {escape(model_summary(job.architecture, language))}</p>'
        )
        self.controls.by_field["summary"].value = summary

    def _soon(self) -> None:
        """Draw what takes longer once the controls rest, so that the plots follow a slider; at once where no event loop runs."""
        if self._later:
            self._later.cancel()
        try:
            self._later = asyncio.get_running_loop().call_later(0.15, self._draw_rest)
        except RuntimeError:
            self._draw_rest()

    def _draw_rest(self) -> None:
        with suppress(PlannerError):  # the controls have moved on to what is no job; they say so themselves
            self.page.link = f"?plan={link_of(self.plan_file())}"
            if self.view.value == "guide":
                self.guide.draw()
            elif self.view.value == "offers":
                self.offers.draw()
            elif self.view.value == "plan":
                self.steps.draw()
            else:
                self.memory.draw_cards(self.plan(), self.language.value)

    def _on_view(self, change: Any) -> None:
        for name, panel in self.panels.items():
            panel.layout.display = None if self.view.value == name else "none"
        guided = self.view.value == "guide"
        for part in (self.verdict, self.controls):
            part.layout.display = "none" if guided else None
        (self._frame.add_class if guided else self._frame.remove_class)("planner-guided")
        if change:
            self._soon()

    def _on_change(self) -> None:
        try:
            self.refresh()
        except PlannerError as error:
            self.controls.show_relevant(experts=True)
            self.controls.show_error(error.field, error.text(self.language.value))
        self.data.draw()
        if self.dry_run:
            self.dry_run.settings_changed()

    def _use(self, calibration: Calibration | None) -> None:
        self.calibration = calibration
        self._on_change()

    def _measured(self, found: Measurement) -> None:
        self.steps.measured(found)
        self.runs.look()

    def _use_data(self, profile: Profile) -> None:
        self.steps.use_data(profile)
        self.offers.use_data(profile)
        self._soon()

    def _on_language(self, _change: Any) -> None:
        language = self.language.value
        say = partial(translated, language=language)
        self.page.language, self.page.title = language, say(_TITLE)
        self.page.texts = {state: say(text) for state, text in STATES.items()}
        self.heading.value = (
            f"<h1>{escape(say(_TITLE))}</h1><p>{escape(say('What fills the card, when, and on which cards the job fits'))}</p>"
        )
        self.memory.translate(language)
        self.controls.translate(language)
        self.offers.translate(language)
        self.steps.translate(language)
        self.guide.translate(language)
        self.view.unobserve(self._on_view, names="value")
        relabel(self.view, [(say(text), name) for name, text in VIEWS.items()])
        self.view.observe(self._on_view, names="value")
        for card in (self.data, self.dry_run, self.pilot, self.runs):
            if card:
                card.translate(language)
        self._on_change()


def _alike(a: Sharding, b: Sharding) -> bool:
    """Whether two ways to share look the same on the controls."""
    return (a.kind, a.num_gpus, a.gpus_per_node, a.offload) == (b.kind, b.num_gpus, b.gpus_per_node, b.offload)
