"""Cards, and who rents them out at which price. Unknown is None, never 0."""

from datetime import date
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from planner.errors import InvalidJob

__all__ = ["MOST_USD_PER_GPU_HOUR", "USABLE_SHARE", "Billing", "Gpu", "MemoryBasis", "Offer", "Provider", "Segment", "Tier"]

Segment = Literal["consumer", "workstation", "datacenter"]
MemoryBasis = Literal["program", "driver", "nominal", "nominal_ecc"]
Billing = Literal["second", "minute", "hour", "started hour"]
Tier = Literal["on-demand", "secure cloud", "community cloud", "cluster", "spot auction"]

MOST_USD_PER_GPU_HOUR = 10_000  # a price above this is a slip of the pen: the dearest card of data/offers.csv costs 27 USD

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


class Provider(BaseModel):
    """Who rents cards out, and on which terms.

    A GB of a price is as the provider counts it, 10^9 or 2^30 bytes. `unverified` names the fields that are general
    knowledge or from a secondary source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str = Field(min_length=1, pattern=r"^[a-z0-9-]+$")
    name: str = Field(min_length=1)
    kind: Literal["hyperscaler", "gpu cloud", "marketplace", "spot auction"]
    billing: Billing | None = None  # the smallest unit of time that is charged
    storage_survives_stop: bool | None = None  # some disk, volume or file system keeps its content while no machine runs
    running_storage_usd_per_gb_month: NonNegativeFloat | None = None
    stopped_storage_usd_per_gb_month: NonNegativeFloat | None = None
    egress_usd_per_gb: NonNegativeFloat | None = None  # the first tier that is charged
    egress_free_gb_per_month: PositiveFloat | None = None
    can_stop: bool | None = None
    has_spot: bool | None = None
    spot_notice_s: PositiveFloat | None = None
    ssh: bool | None = None
    docker: bool | None = None
    jupyter: bool | None = None
    multi_node: bool | None = None
    node_fabric: str = ""  # the network between machines, in the provider's words
    nvlink_in_node: str = ""  # where the cards of one machine are linked, in the source's words
    unverified: tuple[str, ...] = ()
    note: str = ""
    source: str = Field(min_length=1)
    retrieved: date

    @model_validator(mode="after")
    def _unverified_are_fields(self) -> Self:
        for name in self.unverified:
            if name not in Provider.model_fields:
                raise InvalidJob("unverified names {name!r}, which is not a field of a provider", field="unverified", name=name)
        return self


class Offer(BaseModel):
    """One kind of machine that a provider rents out. Prices are USD per hour of the whole machine, before tax.

    Each price is the lowest and, where known, the median over the places that the source covers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    provider_id: str = Field(min_length=1)
    instance_type: str = Field(min_length=1)
    tier: Tier = "on-demand"
    gpu_id: str | None = None  # None: a card that gpus.csv does not have, or that the source leaves open
    gpu_name: str = Field(min_length=1)  # as published
    gpu_count: PositiveInt
    vcpus: PositiveInt | None = None
    host_memory_bytes: PositiveInt | None = None
    disk_bytes: PositiveInt | None = None  # that comes with the machine and is in the price
    fabric_bytes_per_s_per_gpu: PositiveFloat | None = None  # to other machines, each direction
    usd_per_hour: PositiveFloat | None = None
    usd_per_hour_median: PositiveFloat | None = None
    spot_usd_per_hour: PositiveFloat | None = None
    spot_usd_per_hour_median: PositiveFloat | None = None
    regions: PositiveInt | None = None  # how many regions or zones the prices are from
    region: str = ""  # which one, where it is one
    price_date: date | None = None  # an estimate is the first day of the estimated window
    price_date_estimated: bool = False
    price_date_note: str = ""
    note: str = ""
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _prices_are_sane(self) -> Self:
        if self.usd_per_hour is None and self.spot_usd_per_hour is None:
            raise InvalidJob("an offer needs a price, on demand or spot", field="usd_per_hour")
        for least, median in (("usd_per_hour", "usd_per_hour_median"), ("spot_usd_per_hour", "spot_usd_per_hour_median")):
            low, middle = getattr(self, least), getattr(self, median)
            if middle is not None and (low is None or middle < low):
                raise InvalidJob(
                    "{name} is {price}; a median is not below the lowest price", field=median, name=median, price=middle
                )
            for name, price in ((least, low), (median, middle)):
                if price is not None and price > MOST_USD_PER_GPU_HOUR * self.gpu_count:
                    raise InvalidJob(
                        "{name} is {price}; more than {limit} USD per GPU and hour is taken for a mistake",
                        field=name, name=name, price=price, limit=MOST_USD_PER_GPU_HOUR,
                    )  # fmt: skip
        return self

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What tells one offer from another: provider, instance type, tier, card and number of cards."""
        return (self.provider_id, self.instance_type, self.tier, self.gpu_name, self.gpu_count)

    def age_days(self, today: date) -> int | None:
        """How old the prices are; the most that it can be where the date is an estimate, None where there is none."""
        return None if self.price_date is None else (today - self.price_date).days
