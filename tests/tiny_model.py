"""A random Llama of a few kB and its tokenizer, made on the spot: what a run without network and without a GPU trains.

python tests/tiny_model.py FOLDER
"""

import json
import sys
from pathlib import Path

__all__ = ["ROWS", "tiny_model", "tiny_rows"]

ROWS = [
    {"prompt": f"What is {a} plus {b}?", "completion": f" It is {a + b}, as anyone can count."}
    for a in range(8)
    for b in range(8)
]


def tiny_model(folder: Path) -> Path:
    """Save the model and a byte-level BPE trained on ROWS in `folder`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator((text for row in ROWS for text in row.values()), trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    set_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def tiny_rows(path: Path) -> Path:
    """ROWS as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


if __name__ == "__main__":
    tiny_model(Path(sys.argv[1]))
