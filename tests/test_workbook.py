"""The app without a browser: set a control, read the job; what is wrong stands beside its control and the page stays."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from planner.catalogues import load_gpus, load_models
from planner.dryrun.summary import DryRunSummary
from planner.errors import PlannerError
from planner.job import METHODS
from planner.pilot import run
from planner.workbook import Workbook
from planner.workbook.app import VIEWS


@pytest.fixture
def app() -> Workbook:
    return Workbook()


def control(app: Workbook, field: str) -> Any:
    return app.controls.by_field[field]


def errors(app: Workbook) -> dict[str, str]:
    return {app.controls.error_field: app.controls.error.value} if app.controls.error_field else {}


def test_the_first_page_is_the_documented_job(app: Workbook) -> None:
    job = app.job()
    assert (job.architecture.name, job.method, job.lora_rank, job.sequence_length) == (
        "meta-llama/Llama-3.1-8B",
        "qlora",
        16,
        2048,
    )
    assert "fits" in app.verdict.value
    assert not errors(app)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sequence_length", 4096), ("micro_batch_size", 8), ("gradient_accumulation_steps", 4), ("lora_rank", 64),
        ("gradient_checkpointing", "off"), ("attention", "eager"), ("loss", "liger"), ("precision", "bf16"),
        ("optimizer", "paged-adamw-8bit"), ("double_quant", False), ("kbit_preparation", False), ("packing", False),
        ("lora_dropout", 0.05), ("keep_outputs", True), ("evaluation", True),
    ],
)  # fmt: skip
def test_each_control_sets_its_field_and_moves_the_plot(app: Workbook, field: str, value: Any) -> None:
    before = app.memory.charts["instant"].spec
    control(app, field).value = value
    assert getattr(app.job(), field) == value
    assert app.memory.charts["instant"].spec != before


@pytest.mark.parametrize(
    ("names", "chosen"),
    [([], "rtx-4090-24"), (["Some Card"], "rtx-4090-24"), (["NVIDIA H200", "Tesla T4"], "h200-sxm-141"), (["Tesla T4"], "t4")],
)
def test_the_attached_card_is_preselected(names: list[str], chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "devices", lambda: names)
    assert control(Workbook(gpu="attached"), "gpu").value == chosen


@pytest.mark.parametrize("method", METHODS)
def test_every_method_draws(app: Workbook, method: str) -> None:
    control(app, "method").value = method
    assert app.job().method == method
    assert not errors(app)
    assert app.memory.charts["method"].spec["data"]


def test_targets_and_heads_are_spelled_out(app: Workbook) -> None:
    control(app, "target_modules").value = "attention"
    control(app, "modules_to_save").value = "lm_head"
    assert app.job().target_modules == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert app.job().modules_to_save == ("lm_head",)


def test_a_mistyped_model_is_said_beside_the_search_box_and_the_plot_stays(app: Workbook) -> None:
    good = app.memory.charts["method"].spec
    control(app, "model").value = "Lama-3.1-8B"
    assert list(errors(app)) == ["model"]
    assert "did you mean" in errors(app)["model"]
    assert app.memory.charts["method"].spec == good
    control(app, "model").value = "Qwen/Qwen2.5-7B"
    assert not errors(app)
    assert app.memory.charts["method"].spec != good


def test_too_long_a_sequence_is_said_beside_its_slider(app: Workbook) -> None:
    control(app, "model").value = "openai-community/gpt2"
    assert list(errors(app)) == ["sequence_length"]
    control(app, "sequence_length").value = 1024
    assert not errors(app)


def test_a_pasted_config_is_used_and_a_broken_one_named(app: Workbook) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "vocab_size": 32_000,
        "intermediate_size": 5504,
        "max_position_embeddings": 4096,
    }
    control(app, "config").value = json.dumps(config)
    assert app.job().architecture.hidden_size == 2048
    assert not errors(app)
    control(app, "config").value = json.dumps({**config, "hidden_size": 10**12})
    assert "hidden_size" in errors(app)["config"]
    control(app, "config").value = "<script>alert(1)</script>"
    assert "<script>" not in errors(app)["config"]
    control(app, "model").value = "Qwen/Qwen2.5-7B"  # a chosen model puts the pasted one away
    assert app.job().architecture.name == "Qwen/Qwen2.5-7B"


@pytest.mark.parametrize("path", ["/etc/passwd", "~/config.json", "../data"])
def test_files_of_the_server_are_not_read(app: Workbook, path: str) -> None:
    control(app, "model").value = path
    assert list(errors(app)) == ["model"]


def test_the_language_turns_everything_and_keeps_the_values(app: Workbook) -> None:
    control(app, "lora_rank").value = 64
    job = app.job()
    app.language.value = "tr"
    assert app.job() == job
    assert app.page.language == "tr"
    assert "sığar" in app.verdict.value
    assert control(app, "method").description == "Yöntem"
    app.language.value = "en"
    assert control(app, "method").description == "Method"


@pytest.mark.parametrize("view", VIEWS)
def test_the_language_leaves_the_view(view: str) -> None:
    app = Workbook(view=view)
    for language in ("tr", "en"):
        app.language.value = language
        assert app.view.value == view
        shown = {name: panel.layout.display != "none" for name, panel in app.panels.items()}
        assert shown == {name: name == view for name in VIEWS}


def test_two_apps_do_not_know_each_other(app: Workbook) -> None:
    other = Workbook()
    control(other, "method").value = "full"
    assert app.job().method == "qlora"


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "tr"])
def test_every_model_and_card_draws(language: str) -> None:
    app = Workbook(language=language)
    control(app, "sequence_length").value = 512
    for name in load_models():
        control(app, "model").value = name
        assert not errors(app), (name, errors(app))
    for gpu in load_gpus():
        control(app, "gpu").value = gpu
        assert not errors(app)


def test_refresh_raises_what_a_callback_shows(app: Workbook) -> None:
    app.controls.set(model="nothing-like-this")
    with pytest.raises(PlannerError):
        app.refresh()


# ---- dry run -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def dry_app(monkeypatch: pytest.MonkeyPatch, small_summary: DryRunSummary) -> Workbook:
    """An app whose dry run answers at once; sequence lengths from 8,192 on wait for ever, FlashAttention is refused."""

    async def answer(job: Any, _gpu: Any, progress: Any, sharding: Any = None) -> DryRunSummary:
        progress("building the model")
        if job.sequence_length >= 8192:
            await asyncio.sleep(60)
        if job.attention == "flash":
            raise PlannerError("the dry run failed ({problem})", problem="<x>")
        return small_summary

    monkeypatch.setattr("planner.dryrun.missing_packages", list)
    monkeypatch.setattr("planner.dryrun.process.dry_run_in_process", answer)
    return Workbook()


def test_a_dry_run_is_drawn_when_asked_for_and_not_before(dry_app: Workbook) -> None:
    card = dry_app.dry_run
    assert card and card.chart is None
    assert card.cancel.layout.display == "none"
    asyncio.run(card.run())
    assert card.chart and card.chart.spec["data"]
    assert "Fullest at" in card.result.value and "planner-earlier" not in card.result.value
    assert "<table" in card.instants.value and "<table" in card.components.value
    assert not card.start.disabled and card.cancel.layout.display == "none"
    assert "<p" in card.status.value and "building" not in card.status.value


def test_a_result_says_when_the_settings_have_moved_on(dry_app: Workbook) -> None:
    card = dry_app.dry_run
    assert card
    asyncio.run(card.run())
    rank = control(dry_app, "lora_rank")
    rank.value = 64
    assert "Llama-3.1-8B, QLoRA, 1 x 2,048 tokens, on RTX 4090" in card.result.value
    rank.value = 16
    assert "planner-earlier" not in card.result.value
    control(dry_app, "model").value = "no such model"
    assert "planner-earlier" in card.result.value
    dry_app.language.value = "tr"
    assert "En dolu an" in card.result.value and card.start.description == "Kuru çalıştırma"


def test_a_dry_run_that_fails_or_is_cancelled_says_so_and_can_be_run_again(dry_app: Workbook) -> None:
    card = dry_app.dry_run
    assert card
    control(dry_app, "attention").value = "flash"
    asyncio.run(card.run())
    assert "the dry run failed (&lt;x&gt;)" in card.status.value

    async def pressed_and_cancelled() -> None:
        control(dry_app, "sequence_length").value = 8192
        card.start.click()
        task = card._task
        card.start.click()
        assert card._task is task
        await asyncio.sleep(0.05)
        assert card.start.disabled and card.cancel.layout.display is None
        dry_app.language.value = "tr"
        assert "model kuruluyor …" in card.status.value and card.start.disabled
        card.cancel.click()
        await asyncio.sleep(0.05)

    asyncio.run(pressed_and_cancelled())
    assert "iptal edildi" in card.status.value
    assert not card.start.disabled and card.chart is None


def test_without_torch_there_is_a_sentence_and_no_button(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.dryrun.missing_packages", lambda: ["torch", "peft"])
    card = Workbook().dry_run
    assert card
    assert "(torch, peft): pip install" in card.heading.value
    assert not card.children[1].children


def test_an_owner_can_switch_the_dry_run_off() -> None:
    assert Workbook(allow_dry_run=False).dry_run is None


def test_the_kernel_of_a_dry_run_has_no_torch(dry_app: Workbook) -> None:
    assert dry_app.dry_run
    before = "torch" in sys.modules
    asyncio.run(dry_app.dry_run.run())
    assert before or "torch" not in sys.modules


NONSENSE: tuple[Any, ...] = (
    None, True, -1, 1e308, 10**30, "x" * 300_000, "<script>document.title='x'</script>", "../../etc/passwd", "\x00\u202e",
    [], [[["deep"]]] * 50, {"__class__": "x"}, [10**12] * 10,
)  # fmt: skip


def test_nonsense_in_any_control_leaves_a_page_that_still_answers(app: Workbook) -> None:
    """What a browser may send over the wire goes into every synced value of every input: only ipywidgets' own refusal may be raised."""
    from traitlets import TraitError

    def below(widget: Any) -> Iterator[Any]:
        yield widget
        for child in getattr(widget, "children", ()):
            yield from below(child)

    for widget in list(below(app)):
        state = widget.get_state()
        for name in {"value", "index", "nothing"} & {*state, "nothing"}:
            if {"value", "index"} & state.keys():
                for value in NONSENSE:
                    with contextlib.suppress(TraitError, TypeError):
                        widget.set_state({name: value})
    page = "".join(part.value for part in (app.verdict, app.memory.why, app.controls.error, app.memory.cards))
    assert "<script>" not in page
    fresh, app.language.value = Workbook(), "en"
    app.open_plan(fresh.plan_file())
    assert not errors(app)
    assert app.verdict.value == fresh.verdict.value
