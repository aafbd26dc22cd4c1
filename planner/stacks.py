"""Training stacks: what the program around the model does that changes memory, as named rows that a job can choose.

Each field is one mechanism read off that stack's source; a stack is the sum of its mechanisms, and none has a factor of its own.
Stacks on Hugging Face's models also depend on the version of transformers, which is a field of its own in the job.
"""

from typing import Literal, NamedTuple

__all__ = ["FORWARD_NOT_UPCAST", "STACKS", "Stack", "StackName", "TransformersVersion"]

StackName = Literal["trainer", "trl", "litgpt", "torchtune", "unsloth"]

# The first version of each kind of modelling code, as far as memory goes.
# 4.31  logits become fp32 as soon as they are made, then are shifted against the labels (a copy); a table of all positions'
#       rotary angles in each layer (Llama until 4.37, others until 4.40)
# 4.41  one table
# 4.46  logits become fp32 in the loss, while forward still holds them in 16 bit
# 5     labels are shifted, not logits (from 4.50 on); routed experts are fused parameters, checkpointing is not reentrant
# Source: transformers models/*/modeling_*.py and loss/loss_utils.py of those versions; published runs on 4.39, 4.45 and 4.48
# hold 12, 12 and 14 bytes per token and word (fms-acceleration).
TransformersVersion = Literal["5", "4.46", "4.41", "4.31"]
# Classes whose forward left 16-bit logits as they are before 4.46. Source: their modeling_*.py in transformers 4.39 and 4.48.
FORWARD_NOT_UPCAST = ("gpt_bigcode", "gpt2", "gpt_neox", "falcon", "bloom", "mpt", "opt")


class Stack(NamedTuple):
    """Mechanisms of one stack. False everywhere: transformers' Trainer, or a loop of one's own on its models."""

    label: str
    source: str
    casts_qlora_to_16_bit: bool = False  # after the k-bit preparation embeddings, head and adapters become 16-bit again
    own_models: bool = False  # not transformers' classes: neither its versions nor PEFT's k-bit preparation matter
    logits_in_fp32: bool = True  # cross-entropy reads a copy in fp32
    holds_logits: bool = False  # the loop's variable keeps them until after backward
    head_in_chunks: bool = False  # loss on 128 tokens at a time, each with its own log_softmax
    adapters_in_base_dtype: bool = False  # adapters, and so their gradients and states, have the dtype of the base
    fused_projection: bool = (
        False  # queries, keys and values are views of one product; LoRA's part of it is kept before it is padded
    )
    untied_head: bool = False  # the output head is a matrix of its own even where the model ties it to the embeddings
    quantizes_head: bool = False  # a 4-bit base has its output head in 4 bit too
    qlora_in_fp32: bool = False  # what is not quantised of a 4-bit base, and so all activations, is fp32
    whole_model_first: bool = False  # FSDP: each rank puts the whole model on its GPU before it keeps its part
    offloads_checkpoints: bool = False  # block inputs wait in host memory


STACKS: dict[StackName, Stack] = {
    "trainer": Stack("Hugging Face Trainer", "transformers/trainer.py: outputs are gone when backward starts"),
    "trl": Stack(
        "TRL SFTTrainer", "trl/trainer/utils.py, peft_module_casting_to_bf16: of a 4-bit base only norms stay fp32, where the run is bf16",
        casts_qlora_to_16_bit=True,
    ),
    "litgpt": Stack(
        "LitGPT", "litgpt/finetune/{full,lora}.py, litgpt/lora.py (LoRAQKVLinear.zero_pad), litgpt/utils.py (chunked_cross_entropy)",
        own_models=True, logits_in_fp32=False, holds_logits=True, head_in_chunks=True, adapters_in_base_dtype=True,
        fused_projection=True, untied_head=True, quantizes_head=True, qlora_in_fp32=True, whole_model_first=True,
    ),
    "torchtune": Stack(
        "torchtune", "torchtune recipes/{full,lora}_finetune_single_device.py and modules/transformer.py: logits in fp32, shifted; "
        "adapters in the model's dtype", own_models=True, adapters_in_base_dtype=True,
    ),
    "unsloth": Stack(
        "Unsloth", "unsloth/models/_utils.py and llama.py: block inputs move to host memory; no fp32 copy of the frozen base",
        own_models=True, offloads_checkpoints=True,
    ),
}  # fmt: skip
