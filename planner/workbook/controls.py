"""The left column: one control per field of the job, its label and choices in either language, its own line for what is wrong."""

from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as widgets

from planner.architecture import Architecture
from planner.catalogues import known_models, load_gpus
from planner.job import ADAPTER_FIELDS, METHODS, Job
from planner.sentences import METHOD_NAMES, SHARDING_NAMES
from planner.sharding import Sharding
from planner.stacks import STACKS
from planner.tables import SEGMENT_NAMES
from planner.texts import translated
from planner.units import format_number
from planner.workbook.page_html import box, relabel

__all__ = ["Controls", "attention_names"]

_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LENGTHS = (128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536, 131072)
_TARGETS = {"all-linear": "all linear layers", "attention": "attention only"}
_HEADS = {"": "none", "lm_head": "output head", "embed_tokens,lm_head": "embeddings and output head"}

# Field -> (label, {value: choice}); the choices are shown in the reader's language.
_CHOICES: dict[str, tuple[str, dict[Any, str]]] = {
    "method": ("Method", METHOD_NAMES),
    "quantization": ("Format of the base", {"none": "16 or 32 bit", "nf4": "4-bit nf4", "fp4": "4-bit fp4", "int8": "int8", "gptq": "4-bit GPTQ"}),
    "precision": (
        "Precision",
        {
            "bf16-mixed": "bf16 mixed (autocast)", "fp16-mixed": "fp16 mixed (autocast)", "bf16": "pure bf16", "fp16": "pure fp16",
            "fp32": "fp32",
        },
    ),
    "optimizer": (
        "Optimizer",
        {
            "adamw": "AdamW", "adamw-fused": "AdamW, fused", "adamw-8bit": "AdamW, 8-bit", "paged-adamw": "AdamW, paged",
            "paged-adamw-8bit": "AdamW, paged 8-bit", "adafactor": "Adafactor", "lion": "Lion", "lion-8bit": "Lion, 8-bit", "sgd": "SGD",
            "sgd-momentum": "SGD with momentum",
        },
    ),
    "gradient_checkpointing": ("Gradient checkpointing", {"on": "on", "reentrant": "on (reentrant)", "off": "off"}),
    "attention": ("Attention", {"sdpa": "sdpa", "flash": "FlashAttention-2", "eager": "eager"}),
    "stack": ("Training stack", {name: row.label for name, row in STACKS.items()}),
    "transformers": ("transformers", {"5": "4.50 and newer", "4.46": "4.46 to 4.49", "4.41": "4.41 to 4.45", "4.31": "4.31 to 4.40"}),
    "loss": ("Loss", {"plain": "plain cross-entropy", "fused-ce": "Triton cross-entropy",
        "chunked": "chunked", "liger": "Liger, fused", "cut-ce": "cut cross-entropy"}),
    "target_modules": ("LoRA on", _TARGETS),
    "modules_to_save": ("Also trained whole", _HEADS),
    "save": ("Saved as", {"checkpoint": "checkpoint", "merged": "merged model"}),
    "sharding": ("Shared by", SHARDING_NAMES),
    "offload": (
        "In host memory", {"none": "nothing", "optimizer": "optimizer states", "parameters": "parameters and optimizer states"},
    ),
}  # fmt: skip
_SLIDERS: dict[str, tuple[str, tuple[int, ...]]] = {
    "sequence_length": ("Sequence length", _LENGTHS),
    "micro_batch_size": ("Micro-batch size", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    "gradient_accumulation_steps": ("Gradient accumulation", _POWERS[:8]),
    "lora_rank": ("LoRA rank", _POWERS),
    "trainable_layers": ("Trained layers", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)),
    "num_virtual_tokens": ("Virtual tokens", (4, 8, 16, 20, 32, 64, 128)),
    "bottleneck_size": ("Bottleneck size", (8, 16, 32, 64, 128, 256)),
    "eval_micro_batch_size": ("Evaluation batch", _POWERS[:7]),
    "num_gpus": ("Number of GPUs", _POWERS[:7]),
    "gpus_per_node": ("GPUs per node", (1, 2, 4, 8, 16)),
}
_SWITCHES = {
    "double_quant": "Double quantisation",
    "kbit_preparation": "k-bit preparation (fp32 norms and head)",
    "packing": "Rows are packed full",
    "evaluation": "Evaluation between steps",
    "keep_outputs": "Loop keeps the model's output",
    "experts_as_linears": "Experts as linear layers (transformers 4)",
}
_DEFAULTS = {
    "sequence_length": 2048, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "lora_rank": 16, "trainable_layers": 2,
    "num_virtual_tokens": 20, "bottleneck_size": 64, "eval_micro_batch_size": 8, "double_quant": True, "kbit_preparation": True,
    "packing": True, "method": "qlora", "quantization": "nf4", "num_gpus": 1, "gpus_per_node": 8, "sharding": "fsdp",
}  # fmt: skip
_DROPOUTS = (0.0, 0.05, 0.1)
_SHARING = ("num_gpus", "sharding", "offload", "gpus_per_node")

# Title of each group and its fields, in order.
_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Model", ("model", "summary", "config")),
    (
        "Method",
        (
            "method", "quantization", "double_quant", "kbit_preparation", "lora_rank", "lora_dropout", "target_modules",
            "modules_to_save", "trainable_layers", "num_virtual_tokens", "bottleneck_size", "experts_as_linears",
        ),
    ),
    ("Batch", ("sequence_length", "micro_batch_size", "gradient_accumulation_steps", "packing")),
    ("Training step", ("precision", "optimizer", "gradient_checkpointing", "attention", "loss", "stack", "transformers", "keep_outputs")),
    ("Card", ("gpu", "num_gpus", "sharding", "offload", "gpus_per_node")),
    ("Evaluation and saving", ("evaluation", "eval_micro_batch_size", "save")),
)  # fmt: skip


class Controls(widgets.VBox):
    """The controls; their values are the only state. `on_change` is called after each change that a user makes.

    They have no labels until `translate` gives them those of a language.
    """

    def __init__(self, on_change: Callable[[], None], *, model: str, gpu: str) -> None:
        self._on_change, self._quiet = on_change, False
        self._values = {field: values for field, (_, values) in _SLIDERS.items()} | {"lora_dropout": _DROPOUTS}
        self._more: dict[str, dict[str, str]] = {}  # choices that an opened job has beside those of its field
        self._kept: dict[str, Any] = {}  # fields of an opened job that have no control
        self.by_field: dict[str, widgets.Widget] = {}
        self.error, self.error_field = widgets.HTML(), ""  # one sentence, put below the control that it is about
        self.error.add_class("planner-error")
        self._labels: dict[str, str] = {}
        self._titles = [(title, widgets.HTML()) for title, _ in _GROUPS]
        self._build(model, gpu)
        self._groups = [self._group(title, fields) for (_, title), (_, fields) in zip(self._titles, _GROUPS, strict=True)]
        super().__init__(self._groups)
        self.add_class("planner-controls")
        for field, control in self.by_field.items():
            if field != "summary":
                control.observe(self._changed, names="value")

    def _build(self, model: str, gpu: str) -> None:
        self._add(
            "model", "Search the catalogue", widgets.Combobox(options=tuple(known_models()), value=model, ensure_option=False)
        )
        self.by_field["summary"] = widgets.HTML()
        self._add("config", "…or paste a config.json", widgets.Textarea(rows=3, continuous_update=False))
        for field, (label, choices) in _CHOICES.items():
            value = _DEFAULTS.get(field, next(iter(choices)))
            self._add(field, label, widgets.Dropdown(options=[(text, key) for key, text in choices.items()], value=value))
        for field, (label, values) in _SLIDERS.items():
            slider = widgets.SelectionSlider(options=values, value=_DEFAULTS[field])
            self._add(field, label, slider)
        self._add("lora_dropout", "LoRA dropout", widgets.SelectionSlider(options=_DROPOUTS))
        for field, label in _SWITCHES.items():
            self._add(field, label, widgets.Checkbox(value=bool(_DEFAULTS.get(field)), indent=False))
        self._add("gpu", "Card", widgets.Dropdown(options=[(card.label, card.id) for card in load_gpus().values()], value=gpu))

    def _add(self, field: str, label: str, control: widgets.Widget) -> None:
        self.by_field[field], self._labels[field] = control, label

    def _group(self, title: widgets.HTML, fields: tuple[str, ...]) -> widgets.VBox:
        return box("planner-group", title, *(self.by_field[field] for field in fields))

    def _changed(self, change: Any) -> None:
        if self._quiet:
            return
        if change["owner"] is self.by_field["method"]:  # a new method brings its own base
            self._kept = {}
            self.set(quantization="nf4" if change["new"] == "qlora" else "none")
        if change["owner"] is self.by_field["model"]:
            self.set(config="")
        self._on_change()

    def set(self, **values: Any) -> None:
        """Set controls without telling anyone."""
        self._quiet = True
        try:
            for field, value in values.items():
                self.by_field[field].value = value
        finally:
            self._quiet = False

    def show(self, job: Job, gpu: str, sharding: Sharding | None) -> None:
        """Set the controls to a job that was opened, without telling anyone; a value that a control lacks is added to it."""
        self._kept = {name: value for name, value in job.fields.items() if name not in self.by_field and name != "architecture"}
        values: dict[str, Any] = {name: getattr(job, name) for name in Job.model_fields if name in self.by_field}
        for name in ("target_modules", "modules_to_save"):
            values[name] = ",".join(values[name])
        if values["target_modules"] == ",".join(attention_names(job.architecture)):
            values["target_modules"] = "attention"
        values |= {"model": job.architecture.name, "config": "", "gpu": gpu, "num_gpus": 1}
        if sharding:
            values |= {"sharding": sharding.kind, **{name: getattr(sharding, name) for name in _SHARING if name != "sharding"}}
        self._quiet = True
        for name, value in values.items():
            control = self.by_field[name]
            if name in self._values and value not in self._values[name]:
                self._values[name] = tuple(sorted({*self._values[name], value}))
                control.options = self._values[name]
            elif name in _CHOICES and value not in _CHOICES[name][1]:
                self._more[name] = {value: value}
                control.options = [*control.options, (value, value)]
        self._quiet = False
        self.set(**values)

    @property
    def model_text(self) -> str:
        """What names the model: the pasted config.json where there is one, else the search box."""
        return str(self.by_field["config"].value).strip() or str(self.by_field["model"].value).strip()

    def values(self, *, experts: bool) -> dict[str, Any]:
        """Values of the job's fields that the chosen method reads; the others keep their defaults."""
        method = self.by_field["method"].value
        read = {"method", "quantization", *_CHOICES, *_SLIDERS, *_SWITCHES, "lora_dropout"} - _all_adapter_fields()
        read |= set(ADAPTER_FIELDS.get(method, ())) & self.by_field.keys()
        if not experts:
            read.discard("experts_as_linears")
        if method == "prefix":  # PEFT has it without checkpointing only
            read.discard("gradient_checkpointing")
        found = {field: self.by_field[field].value for field in read & Job.model_fields.keys()}
        for name in {"target_modules", "modules_to_save"} & found.keys():
            found[name] = tuple(part for part in found[name].split(",") if part)
        return self._kept | found

    def sharding_values(self) -> dict[str, Any]:
        """How GPUs share the job, as planner.job_options.sharding_of takes it."""
        return {field: self.by_field[field].value for field in _SHARING}

    def show_relevant(self, *, experts: bool) -> None:
        """Hide what the chosen method does not read."""
        method, quantization = self.by_field["method"].value, self.by_field["quantization"].value
        hidden = _all_adapter_fields() - set(ADAPTER_FIELDS.get(method, ()))
        if quantization == "none":
            hidden |= {"double_quant", "kbit_preparation"}
        elif quantization == "int8":
            hidden |= {"double_quant"}
        if method in ("full", "freeze", "prefix", "prompt", "p-tuning", "bottleneck"):
            hidden |= {"quantization"}
        if method == "prefix":
            hidden |= {"gradient_checkpointing"}
        if not experts:
            hidden |= {"experts_as_linears"}
        if self.by_field["num_gpus"].value == 1:
            hidden |= set(_SHARING) - {"num_gpus"}
        if not self.by_field["evaluation"].value:
            hidden |= {"eval_micro_batch_size"}
        for field, control in self.by_field.items():
            display = "none" if field in hidden else None
            if control.layout.display != display:
                control.layout.display = display

    def show_error(self, field: str, message: str) -> None:
        """Put one sentence below a control (below the model where the field has none); no message takes it away."""
        if message and field not in self.by_field:
            field = "config" if self.by_field["config"].value else "model"
        text = f'<span role="alert">{escape(message)}</span>' if message else ""
        if self.error.value != text:
            self.error.value = text
        if self.error_field == field:
            return
        if self.error_field:
            self.by_field[self.error_field].remove_class("planner-invalid")
        if field:
            self.by_field[field].add_class("planner-invalid")
        self.error_field = field
        for group, (_, fields) in zip(self._groups, _GROUPS, strict=True):
            children = [group.children[0]]
            for name in fields:
                children += [self.by_field[name], *([self.error] if name == field else [])]
            if tuple(children) != group.children:
                group.children = children

    def translate(self, language: str) -> None:
        """Labels and choices in one language; values stay."""
        self._quiet = True
        for (title, _), (_, heading) in zip(_GROUPS, self._titles, strict=True):
            heading.value = f"<h3>{escape(translated(title, language))}</h3>"
        for field, label in self._labels.items():
            self.by_field[field].description = translated(label, language)
        for field, (_, choices) in _CHOICES.items():
            options = choices | self._more.get(field, {})
            relabel(self.by_field[field], [(translated(text, language), key) for key, text in options.items()])
        for field, values in self._values.items():
            decimals = 2 if field == "lora_dropout" else 0
            relabel(self.by_field[field], [(format_number(value, decimals, language=language), value) for value in values])
        cards = sorted(load_gpus().values(), key=lambda card: (list(SEGMENT_NAMES).index(card.segment), card.usable_memory_bytes))
        names = [(f"{card.label} · {translated(SEGMENT_NAMES[card.segment], language)}", card.id) for card in cards]
        relabel(self.by_field["gpu"], names)
        self.by_field["model"].placeholder = translated("for example Llama-3.1-8B", language)
        self.by_field["config"].placeholder = '{"model_type": "llama", "hidden_size": 4096, …}'
        self._quiet = False


def attention_names(architecture: Architecture) -> tuple[str, ...]:
    """The linear layers of attention, by the names that LoRA's targets have."""
    return tuple(dict.fromkeys(linear.name for linear in architecture.blocks[0].attention))


def _all_adapter_fields() -> set[str]:
    return {field for method in METHODS for field in ADAPTER_FIELDS[method]}
