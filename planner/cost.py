"""What a run costs: machine time as the provider rounds it, storage, egress. What is not known is never counted as zero."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from planner.hardware import Billing, Provider

__all__ = ["Bill", "BillLine", "bill", "billed_hours"]

_UNIT_S: dict[Billing, float] = {"second": 1, "minute": 60, "hour": 3600, "started hour": 3600}
_MONTH_S = 730 * 3600  # as cloud price lists count a month
_GB = 1e9


def billed_hours(seconds: float, billing: Billing | None, *, runs: float = 1) -> float:
    """Hours that are charged for `seconds` of one machine, in `runs` starts that are each rounded up by themselves.

    A broken-up run is on average half a unit longer per start. Where the unit is not known, seconds are charged as they are.
    """
    unit = _UNIT_S[billing] if billing else 0
    if not unit:
        return seconds / 3600
    if runs <= 1:
        return math.ceil(round(seconds / unit, 9)) * unit / 3600
    return (seconds + runs * unit / 2) / 3600


class BillLine(NamedTuple):
    """One part of a bill; `usd` is None where a price is not known."""

    name: str
    usd: float | None
    formula: str
    source: str


@dataclass(frozen=True)
class Bill:
    """What is charged, line by line."""

    lines: tuple[BillLine, ...]

    @property
    def usd(self) -> float:
        """The sum of what is known; see `unknown`."""
        return sum(line.usd for line in self.lines if line.usd is not None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the parts that no price is known for."""
        return tuple(line.name for line in self.lines if line.usd is None)


def bill(
    usd_per_hour: float,
    billed_s: float,
    provider: Provider,
    *,
    machines: int = 1,
    runs: float = 1,
    disk_bytes: float = 0,
    kept_s: float = 0,
    result_bytes: float = 0,
) -> Bill:
    """The bill of `machines` that run for `billed_s` seconds each, with `disk_bytes` on each while they run.

    The disk of one machine is kept for `kept_s` seconds more, with no machine running; `result_bytes` leave the provider once.
    """
    hours = billed_hours(billed_s, provider.billing, runs=runs)
    rounding = provider.billing or "second, as the unit is not known"
    source = f"{provider.name}: {provider.source}"
    running, stopped, egress = (
        provider.running_storage_usd_per_gb_month, provider.stopped_storage_usd_per_gb_month, provider.egress_usd_per_gb,
    )  # fmt: skip
    lines = [
        BillLine("machine time", machines * hours * usd_per_hour, f"{machines} x {hours:.4g} h x price, by {rounding}", source)
    ]
    gb, months = disk_bytes / _GB, billed_s / _MONTH_S
    if disk_bytes:
        size = None if running is None else machines * gb * months * running
        lines.append(BillLine("storage while running", size, f"{machines} x {gb:.4g} GB x {months:.3g} months", source))
    if disk_bytes and kept_s:
        months = kept_s / _MONTH_S
        size = None if stopped is None else gb * months * stopped
        lines.append(BillLine("storage while stopped", size, f"{gb:.4g} GB x {months:.3g} months", source))
    if result_bytes:
        charged = max(result_bytes / _GB - (provider.egress_free_gb_per_month or 0), 0)
        lines.append(BillLine("egress of the results", None if egress is None else charged * egress, f"{charged:.4g} GB", source))
    return Bill(tuple(lines))
