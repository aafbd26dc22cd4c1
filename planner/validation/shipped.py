"""The columns of data/measurements.csv, and how a row with prose becomes one of it."""

from planner.validation.cells import Cells
from planner.validation.published import Skipped, published_run

__all__ = ["MEASUREMENT_COLUMNS", "cleaned"]

# What of a published row is kept as it stands, and what the mapping has read off its prose.
FACTS = (
    "id", "quantity", "peak_mib", "model", "params_b", "method", "base_quantization", "lora_rank", "lora_targets", "optimizer", "precision",
    "sequence_length", "micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "attention", "loss_kernel", "sharding",
    "num_gpus", "gpu", "tokens_per_second",
)  # fmt: skip
READ = (
    "stack", "transformers", "double_quant", "kbit_preparation", "adapter_dtype", "lengths", "modules_to_save", "optimizer_in_backward",
    "divided_base", "not_said",
)  # fmt: skip
ORIGIN = ("framework", "grade", "source", "ref", "date")
MEASUREMENT_COLUMNS = (*FACTS, *READ, *ORIGIN)


def cleaned(cells: Cells) -> dict[str, str]:
    """A row of the shipped table from one with prose: the same job, said in columns."""
    found = published_run(cells)
    row = {name: (cells.get(name) or "").strip() for name in MEASUREMENT_COLUMNS}
    if isinstance(found, Skipped):
        return (
            row if isinstance(published_run(row), Skipped) else row | {"not_said": found.reason}
        )  # where the columns do not show it
    job, yes = found.job, {True: "yes", False: "no"}
    read = {
        "precision": {"bf16": "bf16_true", "fp16": "fp16_true", "bf16-mixed": "bf16_mixed", "fp16-mixed": "fp16_mixed"}.get(
            job.precision, job.precision),
        "loss_kernel": job.loss, "stack": job.stack, "transformers": job.transformers, "double_quant": yes[job.double_quant],
        "kbit_preparation": yes[job.kbit_preparation], "adapter_dtype": "fp32" if job.autocast_adapter_dtype else "base",
        "lengths": found.lengths, "modules_to_save": ";".join(job.modules_to_save), "optimizer_in_backward": yes[job.optimizer_in_backward],
        "divided_base": yes[bool(found.sharding and found.sharding.divided_base)],
        "base_quantization": {"none": "", "gptq": "gptq4"}.get(job.quantization, job.quantization),
        "method": "full" if job.method == "full" else "lora",
    }  # fmt: skip
    return row | read
