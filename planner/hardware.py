"""Cards: what a GPU offers to a fine-tuning job. Unknown is None, never 0."""

from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

__all__ = ["USABLE_SHARE", "Gpu", "MemoryBasis", "Segment"]

Segment = Literal["consumer", "workstation", "datacenter"]
MemoryBasis = Literal["program", "driver", "nominal", "nominal_ecc"]

# Share of a card's stated memory that a program can allocate, by what the statement is. This is the only place for it.
# program      what cudaMemGetInfo shows to a program: all of it.
# driver       what nvidia-smi or a cloud's interface shows. Program / driver is 0.984 (A10G, RTX 4090) to 0.990 (H200).
# nominal      the number on the box, read as GiB. Driver / box is 0.995 (RTX 5090) or more on cards without in-band ECC;
#              times the share above, and rounded down.
# nominal_ecc  the same on a GDDR card that keeps its ECC bits in its memory: a T4 "16 GB" shows 14,912 of 16,384 MiB.
# Source: data/gpus.csv, rows of both kinds, and the notes on memory_mib in data/README.md.
USABLE_SHARE = MappingProxyType({"program": 1.0, "driver": 0.98, "nominal": 0.96, "nominal_ecc": 0.91})


class Gpu(BaseModel):
    """One device as a program sees it. Peak rates are dense; `memory_bytes` is the stated size, of the kind `memory_basis`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str = Field(min_length=1, pattern=r"^[a-z0-9-]+$")
    name: str = Field(min_length=1)
    aliases: tuple[str, ...] = ()
    vendor: Literal["NVIDIA", "AMD", "Intel"]
    segment: Segment
    architecture: str = Field(min_length=1)
    compute_capability: tuple[int, int] | None = None  # NVIDIA only
    memory_bytes: PositiveInt
    memory_basis: MemoryBasis
    memory_type: str = Field(min_length=1)
    memory_bandwidth_bytes_per_s: PositiveFloat | None = None
    peak_bf16_flops_per_s: PositiveFloat | None = None
    peak_fp16_flops_per_s: PositiveFloat | None = None
    peak_fp8_flops_per_s: PositiveFloat | None = None
    peak_int8_ops_per_s: PositiveFloat | None = None
    supports_bf16: bool | None = None
    supports_4bit: bool | None = None  # bitsandbytes nf4 and fp4
    supports_int8: bool | None = None  # bitsandbytes LLM.int8() and its int8 tensor cores
    supports_flash_attention: bool | None = None  # FlashAttention-2
    nvlink_bytes_per_s: PositiveFloat | None = None  # both directions together
    pcie_generation: PositiveInt | None = None
    tdp_watts: PositiveFloat | None = None
    release_year: Annotated[int, Field(ge=2006, le=2100)] | None = None
    note: str = ""
    source: str = Field(min_length=1)
    retrieved: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")

    @property
    def usable_memory_bytes(self) -> int:
        """Bytes that a program can allocate with the card otherwise idle, its own CUDA context included."""
        return int(self.memory_bytes * USABLE_SHARE[self.memory_basis])

    @property
    def label(self) -> str:
        """The name without the vendor's product line: `RTX 4090`, `T4`."""
        first, _, rest = self.name.partition(" ")
        return rest if first in ("GeForce", "Tesla", "Instinct", "Radeon", "Quadro") else self.name
