"""What the user wants to run: one frozen record, of which every widget and every command-line option is one field."""

from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PositiveInt, model_validator

from planner.adapters import ALL_LINEAR, IA3, Adapter, BottleneckAdapter, LoRA, PrefixTuning, PromptTuning, PTuning, check_targets
from planner.architecture import Architecture, Record
from planner.blocks import Tensor
from planner.errors import InvalidJob
from planner.optimizers import OPTIMIZERS, Optimizer
from planner.precision import PRECISIONS, Precision, Quantization
from planner.stacks import STACKS, Stack, StackName, TransformersVersion

__all__ = ["ADAPTER_FIELDS", "METHODS", "Job", "Method"]

Method = Literal["full", "freeze", "lora", "qlora", "dora", "ia3", "prefix", "prompt", "p-tuning", "bottleneck"]
METHODS: tuple[Method, ...] = get_args(Method)

# Methods whose PEFT layers exist for a bitsandbytes base. Source: peft/tuners/{lora,ia3}/bnb.py.
_ON_4_BIT = ("qlora", "dora", "ia3")
_ON_INT8 = ("lora", "dora", "ia3")
_ON_GPTQ = ("lora",)

# Which fields a method reads beyond those that all of them read; a control for another field has no effect.
ADAPTER_FIELDS: dict[Method, tuple[str, ...]] = {
    "full": (),
    "freeze": ("trainable_layers",),
    "lora": ("lora_rank", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save", "use_rslora"),
    "qlora": ("lora_rank", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save", "use_rslora"),
    "dora": ("lora_rank", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save", "use_rslora"),
    "ia3": ("modules_to_save",),
    "prefix": ("num_virtual_tokens",),
    "prompt": ("num_virtual_tokens",),
    "p-tuning": ("num_virtual_tokens",),
    "bottleneck": ("bottleneck_size",),
}


class Job(Record):
    """A fine-tuning job on one model. Sizes are per device; lengths in tokens.

    The defaults are those of `planner estimate MODEL`: QLoRA, nf4 with double quantisation, rank 16 on all linears.
    Raises InvalidJob, one sentence that names the field, where a value or a combination does not exist.
    """

    architecture: Architecture
    method: Method = "qlora"
    quantization: Quantization = "none"  # of the frozen base; qlora means nf4 unless fp4 is asked for
    double_quant: bool = True
    kbit_preparation: bool = True  # PEFT's prepare_model_for_kbit_training: what is not quantised becomes fp32
    precision: Literal["bf16-mixed", "fp16-mixed", "bf16", "fp16", "fp32"] = "bf16-mixed"
    optimizer: Literal[
        "adamw",
        "adamw-fused",
        "adamw-8bit",
        "paged-adamw",
        "paged-adamw-8bit",
        "adafactor",
        "lion",
        "lion-8bit",
        "sgd",
        "sgd-momentum",
    ] = "adamw"
    sequence_length: PositiveInt = 2048
    micro_batch_size: Annotated[PositiveInt, Field(le=65536)] = 1
    gradient_accumulation_steps: Annotated[PositiveInt, Field(le=65536)] = 1
    optimizer_in_backward: bool = False  # each parameter is updated as soon as its gradient is there, which is then dropped
    gradient_checkpointing: Literal["off", "on", "reentrant"] = "on"
    attention: Literal["eager", "sdpa", "flash"] = "sdpa"
    loss: Literal["plain", "fused-ce", "chunked", "liger", "cut-ce"] = "plain"
    stack: StackName = "trainer"  # the program around the model, where it changes memory: see planner.stacks
    transformers: TransformersVersion = "5"  # the kind of modelling code, by the first version that has it
    keep_outputs: bool = False  # a loop that holds the model's output, and so the logits, until after backward
    packing: bool = True  # rows are full; off: rows are padded, and a mask says where
    varying_lengths: bool = False  # batches differ in length, up to sequence_length: the allocator's cache goes to pieces

    lora_rank: PositiveInt = 16
    lora_alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 32
    lora_dropout: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    use_rslora: bool = False  # scales by alpha / sqrt(r): no byte more
    target_modules: tuple[str, ...] = (ALL_LINEAR,)
    modules_to_save: tuple[Literal["embed_tokens", "lm_head"], ...] = ()
    autocast_adapter_dtype: bool = True  # PEFT keeps adapters of a 16-bit base in fp32
    experts_as_linears: bool = False  # mixtures of experts: transformers 4 (linears) or 5 (fused parameters)
    trainable_layers: PositiveInt = 2  # of layer freezing: the last ones
    num_virtual_tokens: Annotated[PositiveInt, Field(le=65536)] = 20
    bottleneck_size: PositiveInt = 64

    evaluation: bool = False  # an evaluation pass between steps
    eval_micro_batch_size: Annotated[PositiveInt, Field(le=65536)] = 8
    save: Literal["checkpoint", "merged"] = "checkpoint"  # merged: the adapter is added to 16-bit weights before saving

    @model_validator(mode="before")
    @classmethod
    def _spell_method(cls, values: Any) -> Any:
        """qlora is LoRA on a 4-bit base: either way of saying it gives the same job. Names are taken once."""
        if not isinstance(values, dict):
            return values
        values = dict(values)
        method, quantization = values.get("method", "qlora"), values.get("quantization")
        if method == "qlora" and quantization is None:
            values["quantization"] = "nf4"
        elif method == "lora" and quantization in ("nf4", "fp4"):
            values["method"] = "qlora"
        elif method == "prefix":  # PEFT refuses checkpointing there
            values.setdefault("gradient_checkpointing", "off")
        for names in ("target_modules", "modules_to_save"):
            if isinstance(values.get(names), list | tuple) and all(isinstance(name, str) for name in values[names]):
                values[names] = tuple(dict.fromkeys(values[names]))
        return values

    @model_validator(mode="after")
    def _possible(self) -> "Job":
        a, adapter = self.architecture, self.adapter
        self._at_most("sequence_length", a.max_position_embeddings - self.virtual_tokens)
        if self.method == "prefix" and self.gradient_checkpointing != "off":
            raise InvalidJob(
                "PEFT has no prefix tuning with gradient checkpointing; give gradient_checkpointing off",
                field="gradient_checkpointing",
            )
        if self.method == "qlora" and self.quantization not in ("nf4", "fp4"):
            raise InvalidJob("qlora needs a 4-bit base; give quantization nf4 or fp4, or method lora", field="quantization")
        allowed = {"int8": _ON_INT8, "gptq": _ON_GPTQ}.get(self.quantization, _ON_4_BIT)
        if self.quantization != "none" and self.method not in allowed:
            raise InvalidJob(
                "method {method!r} does not exist on an {quantization} base; use quantization none, or one of {allowed}",
                field="quantization", method=self.method, quantization=self.quantization, allowed=", ".join(allowed),
            )  # fmt: skip
        if self.quantization != "none" and self.precision == "fp32":
            raise InvalidJob(
                "a quantised base computes in 16 bit; give precision bf16-mixed, fp16-mixed, bf16 or fp16", field="precision"
            )
        if isinstance(adapter, LoRA):
            check_targets(self.target_modules, a)
            fused = not self.experts_as_linears and any(adapter.expert_targets(block) for block in a.blocks)
            if fused and (self.method == "dora" or self.lora_dropout):
                raise InvalidJob(
                    "PEFT puts neither DoRA nor dropout on the fused experts of {model}; name attention layers as target_modules, or leave it out",
                    field="method" if self.method == "dora" else "lora_dropout", model=a.name,
                )  # fmt: skip
            self._at_most("lora_rank", a.hidden_size)
        if self.modules_to_save and "modules_to_save" not in ADAPTER_FIELDS[self.method]:
            raise InvalidJob("modules_to_save belongs to LoRA, QLoRA, DoRA and IA3; leave it out", field="modules_to_save")
        if self.method == "freeze":
            self._at_most("trainable_layers", a.num_hidden_layers)
        if self.method == "bottleneck":
            self._at_most("bottleneck_size", a.hidden_size)
        if self.attention == "flash" and self.precision == "fp32":
            raise InvalidJob(
                "flash attention has 16-bit kernels only; give attention sdpa, or another precision", field="attention"
            )
        if self.attention == "flash" and "flash" not in a.attention_kernels:
            raise InvalidJob(
                "{model_type} has no flash attention in transformers; give attention {known}",
                field="attention", model_type=a.model_type, known=", ".join(a.attention_kernels),
            )  # fmt: skip
        if self.optimizer_in_backward and self.gradient_accumulation_steps > 1:
            raise InvalidJob(
                "an optimizer that runs in backward keeps no gradients to accumulate; give gradient_accumulation_steps 1",
                field="gradient_accumulation_steps",
            )
        if self.save == "merged" and not isinstance(adapter, LoRA | IA3):
            raise InvalidJob("method {method!r} has nothing to merge; give save checkpoint", field="save", method=self.method)
        return self

    def _at_most(self, field: str, limit: int) -> None:
        if getattr(self, field) > limit:
            template = "{name} is {given}; {model} allows at most {limit}"
            raise InvalidJob(
                template, field=field, name=field, given=getattr(self, field), model=self.architecture.name, limit=limit
            )

    @cached_property
    def adapter(self) -> Adapter | None:
        """The adapter record, or None where weights of the model itself are trained."""
        match self.method:
            case "lora" | "qlora" | "dora":
                return LoRA(
                    rank=self.lora_rank,
                    target_modules=self.target_modules,
                    dropout=self.lora_dropout,
                    use_dora=self.method == "dora",
                    experts_as_linears=self.experts_as_linears,
                )
            case "ia3":
                return IA3()
            case "prefix":
                return PrefixTuning(num_virtual_tokens=self.num_virtual_tokens)
            case "prompt":
                return PromptTuning(num_virtual_tokens=self.num_virtual_tokens)
            case "p-tuning":
                return PTuning(num_virtual_tokens=self.num_virtual_tokens)
            case "bottleneck":
                return BottleneckAdapter(bottleneck_size=self.bottleneck_size)
        return None

    @cached_property
    def trained_tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that the optimizer updates, copies of modules_to_save among them."""
        a, adapter = self.architecture, self.adapter
        if adapter is None:
            return tuple(a.tensors(self.trainable_layers if self.method == "freeze" else None))
        copies = (
            [Tensor(len(self.modules_to_save), a.vocab_size, a.embedding_size or a.hidden_size)] if self.modules_to_save else []
        )
        return (*adapter.tensors(a), *copies)

    @property
    def virtual_tokens(self) -> Any:
        """Positions that prompt learning takes beside the user's tokens."""
        return self.num_virtual_tokens if self.method in ("prefix", "prompt", "p-tuning") else 0

    @property
    def length(self) -> Any:
        """Rows that pass through the blocks: prompt embeddings stand before the user's tokens, a prefix only in the keys.

        Source: peft/peft_model.py, PeftModelForCausalLM.forward.
        """
        return self.sequence_length + (0 if self.method == "prefix" else self.virtual_tokens)

    @property
    def trains_head(self) -> bool:
        """Whether the output head's own weight gets a gradient."""
        return self.method == "full" or "lm_head" in self.modules_to_save

    @property
    def copied_params(self) -> int:
        """Parameters of whole modules that PEFT copies and trains beside the adapter (modules_to_save)."""
        return len(self.modules_to_save) * self.architecture.embedding_params

    @cached_property
    def trained_params(self) -> Any:
        """How many parameters the optimizer updates."""
        return sum(tensor.params for tensor in self.trained_tensors)

    @property
    def numbers(self) -> Precision:
        """Bytes per element of this job's precision."""
        return PRECISIONS[self.precision]

    @property
    def stack_row(self) -> Stack:
        """What this job's stack does."""
        return STACKS[self.stack]

    @property
    def optimizer_row(self) -> Optimizer:
        """What this job's optimizer keeps and needs."""
        return OPTIMIZERS[self.optimizer]

    @property
    def attention_used(self) -> str:
        """The attention that transformers runs: eager where the model's code has no sdpa."""
        return self.attention if self.attention in self.architecture.attention_kernels else "eager"

    def changed(self, **values: Any) -> "Job":
        """This job with other values, checked again; a change of method forgets the old base's quantisation."""
        kept = self.fields
        if "method" in values and "quantization" not in values and values["method"] != self.method:
            del kept["quantization"]
        if values.get("method") == "prefix":
            del kept["gradient_checkpointing"]
        return Job(**(kept | values))

    @property
    def fields(self) -> dict[str, Any]:
        """Field names and values, as the constructor takes them."""
        return {name: getattr(self, name) for name in Job.model_fields}
