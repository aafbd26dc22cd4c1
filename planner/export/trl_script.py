"""The parts of the exported train.py that no plan changes. @NAMES@ are filled in by planner.export.trl; braces are the script's own."""

__all__ = ["SCRIPT"]

SCRIPT = '''\
@HEADER@
"""Fine-tune @TITLE@ with TRL.

    @COMMAND@

Run again after an interruption it goes on from the last whole checkpoint in --output. There it leaves final/ (@RESULT@),
trainer_state.json (loss and learning rate of every step), train_results.json (time, and the peak of GPU memory) and
environment.json (versions): what a record is made from. A gated model is fetched with the token in the environment variable HF_TOKEN.
"""

import argparse
import json
import os
import platform
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from datasets import load_dataset
@IMPORTS@

MODEL = @MODEL@
CUDA = torch.cuda.is_available()
DTYPE = torch.@DTYPE@ if CUDA else torch.float32
ATTENTION = @ATTENTION@
OPTIMIZER = @OPTIMIZER@
EVALUATION_ROWS = @EVALUATION_ROWS@  # held out; at most a tenth of all rows
PAIRS = (
    ("instruction", "output"), ("instruction", "response"), ("prompt", "completion"), ("prompt", "response"), ("question", "answer"),
)
PLAIN_CHAT = (  # where a base model's tokenizer has no chat template
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}\\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
@CLASSES@
def say(text):
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"train.py: {text}", flush=True)


def rows_of(path):
    """The user's rows as TRL takes them: messages, prompt and completion, or text. JSON lines, CSV, Parquet or plain text."""
    if not Path(path).is_file():
        sys.exit(f"train.py: there is no file {path}")
    kind = {".csv": "csv", ".parquet": "parquet", ".txt": "text"}.get(Path(path).suffix.lower(), "json")
    rows = load_dataset(kind, data_files=str(path), split="train")
    names = rows.column_names
    pair = next((pair for pair in PAIRS if set(pair) <= set(names)), None)
    chat = next((name for name in ("messages", "conversations") if name in names), None)
    text = next((name for name in ("text", "content") if name in names), None)

    def worded(value):  # a CSV's numbers are words too; messages stay a list
        return value if value is None or isinstance(value, list) else str(value)

    def as_trl(row):
        if chat:
            roles = {"human": "user", "gpt": "assistant"}
            turns = [(m.get("role") or m.get("from"), m.get("content") or m.get("value")) for m in row[chat] or []]
            return {"messages": [{"role": roles.get(role, role), "content": said} for role, said in turns if role and said]}
        if pair:
            prompt, completion = worded(row[pair[0]]), worded(row[pair[1]])
            if pair[0] != "prompt":
                prompt = "\\n".join(part for part in (prompt, worded(row.get("input") or row.get("context"))) if part) + "\\n"
            return {"prompt": prompt, "completion": completion}
        return {"text": worded(row[text])}

    if not (chat or pair or text):
        sys.exit(f"train.py: {path} has the columns {', '.join(names)}; give messages, prompt and completion, or text")
    found = rows.map(as_trl, remove_columns=names).filter(lambda row: all(row.values()))
    if not len(found):
        sys.exit(f"train.py: no row of {path} has text")
    say(f"{len(found)} rows of {path}, {len(rows) - len(found)} without text left out")
    return found


def last_checkpoint(folder):
    """The newest whole one: the Trainer writes trainer_state.json last."""
    found = [path for path in Path(folder).glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    return str(max(found, key=lambda path: int(re.sub(r"\\D", "", path.name)))) if found else None


def environment():
    """The versions that this run has."""
    found = {"python": platform.python_version()}
    for name in ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "bitsandbytes", "deepspeed"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def make_model(name):
@BUILD@    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="JSON lines, CSV, Parquet or text")
    parser.add_argument("--model", default=MODEL, help="local folder or Hub id [%(default)s]")
    parser.add_argument("--output", default="out", help="folder of checkpoints and result [%(default)s]")
    parser.add_argument("--max-steps", type=int, default=-1, help="else @EPOCHS@ epochs")
    given = parser.parse_args()
    optimizer = OPTIMIZER
    if not CUDA:
        say("no CUDA device: float32 instead of @DTYPE@, no mixed precision; this is a trial, not the planned run")
        if optimizer not in ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd"):
            optimizer = "adamw_torch"
            say(f"{OPTIMIZER} needs CUDA: {optimizer} instead")
    args = SFTConfig(  # before the model: DeepSpeed's stage 3 divides it while it is loaded
        output_dir=given.output,
        max_steps=given.max_steps,
        optim=optimizer,
        bf16=@BF16@,
        fp16=@FP16@,
        use_cpu=not CUDA,
        dataloader_pin_memory=CUDA,
@CONFIG@    )
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    rows = rows_of(given.data)
    if "messages" in rows.column_names and tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN_CHAT
        say("the tokenizer has no chat template: a plain one is used, and saved with the result")
    held_out = None
    if kept := min(EVALUATION_ROWS, len(rows) // 10):
        parts = rows.train_test_split(test_size=kept, seed=args.seed)
        rows, held_out = parts["train"], parts["test"]
    args.eval_strategy = "epoch" if held_out else "no"
    set_seed(args.seed)
    model = make_model(given.model)
    longest = (getattr(model.config, "max_position_embeddings", None) or args.max_length) - @VIRTUAL@
    if args.max_length > longest:
        say(f"rows of {longest} tokens, the model's longest, instead of {args.max_length}")
        args.max_length = longest
    trainer = @TRAINER@(model=model, args=args, train_dataset=rows, eval_dataset=held_out, processing_class=tokenizer)
@AFTER@    checkpoint = last_checkpoint(given.output)
    if checkpoint:
        say(f"going on from {checkpoint}")
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    if CUDA:
        metrics["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        metrics["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    if trainer.is_world_process_zero():
        (Path(given.output) / "environment.json").write_text(json.dumps(environment(), indent=1))
@SAVE@    say(f"done: {given.output}")


if __name__ == "__main__":
    main()
'''
