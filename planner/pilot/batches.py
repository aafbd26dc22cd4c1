"""Micro-batches of a pilot: random tokens, or the user's rows through their tokenizer, endlessly."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from planner.dataset import Reader
from planner.errors import PlannerError
from planner.job import Job

__all__ = ["Batches"]


class Batches:
    """An endless iterator of micro-batches for `job` on `device`.

    Without `data` every batch is the same one of random tokens, so that the loss must fall. With it rows are packed to the
    sequence length, or padded to it with a mask. `rows` counts those read in the first pass, `rows_failed` those without text.
    """

    def __init__(self, job: Job, device: str, data: str | None, weights: str | None, rank: int = 0, ranks: int = 1) -> None:
        self.job, self.device = job, device
        self.rows = self.rows_failed = 0
        self.tokenizer: str | None = None
        self._first_pass, self._shard = True, (rank, ranks)
        if data:
            self._encode = self._encoder(weights)
            self._ids: Iterator[list[int]] = self._endless(data)

    @property
    def random(self) -> bool:
        """Whether tokens are made up."""
        return self.tokenizer is None

    def batch(self, rows: int | None = None) -> dict[str, Any]:
        """The next batch of `rows` (a micro-batch unless said otherwise). Raises PlannerError where no row of the file has text."""
        rows = rows or self.job.micro_batch_size
        S, V = self.job.sequence_length, self.job.architecture.vocab_size
        if self.random:
            generator = torch.Generator(device=self.device).manual_seed(0)
            ids = torch.randint(0, V, (rows, S), device=self.device, generator=generator)
            batch = {"input_ids": ids, "labels": ids.clone()}
            return batch if self.job.packing else {**batch, "attention_mask": torch.ones_like(ids)}
        lengths = []
        host = torch.zeros(rows, S, dtype=torch.long)
        for row in range(rows):
            tokens = next(self._ids)
            lengths.append(len(tokens))
            host[row, : len(tokens)] = torch.tensor(tokens)
        mask = torch.arange(S)[None] < torch.tensor(lengths)[:, None]
        batch = {"input_ids": host, "labels": host.masked_fill(~mask, -100)}
        if not self.job.packing:
            batch["attention_mask"] = mask.long()
        return {name: value.to(self.device) for name, value in batch.items()}

    def _encoder(self, weights: str | None) -> Any:
        """Text to token ids: the model's own tokenizer where it is at hand, else bytes, which is said in the record.

        At hand is the weights' folder or the Hub's cache. A pasted config.json can name its model as it likes, so that such a name is
        never read as a path.
        """
        from transformers import AutoTokenizer

        name, V = weights or self.job.architecture.name, self.job.architecture.vocab_size
        try:
            if not weights and (name.startswith((".", "/", "~")) or os.path.lexists(name)):
                raise OSError(f"{name} is a path")
            tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=weights is None, trust_remote_code=False)
        except Exception:  # noqa: BLE001  none in the folder, or in the cache
            self.tokenizer = "bytes"
            return lambda text: [byte % V for byte in text.encode()]
        self.tokenizer = name
        end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []

        def encode(text: str) -> list[int]:
            return [token % V for token in [*tokenizer(text)["input_ids"], *end]]

        return encode

    def _endless(self, data: str) -> Iterator[list[int]]:
        S, packed = self.job.sequence_length, list[int]()
        while True:
            found = False
            for text in self._texts(data):
                found = True
                tokens = self._encode(text)
                if not self.job.packing:
                    yield tokens[:S] or [0]
                    continue
                packed += tokens
                while len(packed) >= S:
                    yield packed[:S]
                    del packed[:S]
            self._first_pass = False
            if not found:
                raise PlannerError("no row of {path!r} has text that a pilot could train on", path=data)

    def _texts(self, data: str) -> Iterable[str]:
        """Texts of this rank's rows; what has none is counted, and never shown."""
        for number, row in enumerate(Reader(data)):
            if self._first_pass:
                self.rows += 1
                self.rows_failed += row.problem is not None
            if row.problem is None and number % self._shard[1] == self._shard[0]:
                yield row.text
