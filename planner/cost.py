"""What a run costs: machine time as the provider rounds it, storage, egress. What is not known is never counted as zero."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from planner.hardware import Billing, Provider

__all__ = ["Bill", "BillLine", "Rates", "bill", "billed_hours", "dearest_rates"]

_UNIT_S: dict[Billing, float] = {"second": 1, "minute": 60, "hour": 3600, "started hour": 3600}
_MONTH_S = 730 * 3600  # as cloud price lists count a month
_GB = 1e9


def billed_hours(seconds: float, billing: Billing | None, *, runs: float = 1) -> float:
    """Hours that are charged for `seconds` of one machine, in `runs` starts that are each rounded up by themselves.

    `runs` is an expected number: 1 for a run that is never broken up, more where interruptions are random (Poisson). The run is
    whole with probability e^-(runs - 1), and then rounded up exactly; else its last part is half a unit longer on average, and each
    part before, of exponential length, 1 / (1 - e^-x) - 1 / x units with x interruptions per unit. Against a simulation within 0.8 %
    up to an interruption in two hours of 8 billed by the hour (tests/test_cost.py). Where the unit is not known, seconds are charged.
    """
    unit = _UNIT_S[billing] if billing else 0
    if not unit or not seconds:
        return seconds / 3600
    whole = math.exp(1 - runs)
    rest = math.ceil(round(seconds / unit, 9)) * unit - seconds
    x = (runs - 1) * unit / seconds
    longer = -1 / math.expm1(-x) - 1 / x if x > 1e-6 else 0.5
    return (seconds + whole * rest + ((1 - whole) / 2 + (runs - 1) * longer) * unit) / 3600


class BillLine(NamedTuple):
    """One part of a bill; `usd` is None where a price is not known, and `at_most_usd` then asks the dearest that is known elsewhere."""

    name: str
    usd: float | None
    at_most_usd: float
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
    def at_most_usd(self) -> float:
        """The sum with what is not known at the dearest rate of any provider: what offers are compared by."""
        return sum(line.at_most_usd for line in self.lines)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the parts that no price is known for."""
        return tuple(line.name for line in self.lines if line.usd is None)


class Rates(NamedTuple):
    """The dearest known rates of all providers, in USD per GB (and month)."""

    running: float = 0.0
    stopped: float = 0.0
    egress: float = 0.0


def dearest_rates(providers: Iterable[Provider]) -> Rates:
    """What to fear where a provider's rate is not known."""
    known = list(providers)

    def most(field: str) -> float:
        return max((rate for provider in known if (rate := getattr(provider, field)) is not None), default=0.0)

    return Rates(most("running_storage_usd_per_gb_month"), most("stopped_storage_usd_per_gb_month"), most("egress_usd_per_gb"))


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
    dearest: Rates = Rates(),  # noqa: B008 (a tuple of numbers)
) -> Bill:
    """The bill of `machines` that run for `billed_s` seconds each, with `disk_bytes` on each while they run.

    The disk of one machine is kept for `kept_s` seconds more, with no machine running; `result_bytes` leave the provider once.
    """
    hours = billed_hours(billed_s, provider.billing, runs=runs)
    rounding = provider.billing or "second, as the unit is not known"
    source = f"{provider.name}: {provider.source}"
    machine = machines * hours * usd_per_hour
    lines = [BillLine("machine time", machine, machine, f"{machines} x {hours:.4g} h x price, by {rounding}", source)]

    def add(name: str, quantity: float, rate: float | None, highest: float, formula: str) -> None:
        known = None if rate is None else quantity * rate
        lines.append(BillLine(name, known, quantity * highest if known is None else known, formula, source))

    gb = disk_bytes / _GB
    if disk_bytes:
        months = machines * billed_s / _MONTH_S
        rate = provider.running_storage_usd_per_gb_month
        add("storage while running", gb * months, rate, dearest.running, f"{gb:.4g} GB x {months:.3g} months")
    if disk_bytes and kept_s:
        months = kept_s / _MONTH_S
        rate = provider.stopped_storage_usd_per_gb_month
        add("storage while stopped", gb * months, rate, dearest.stopped, f"{gb:.4g} GB x {months:.3g} months")
    if result_bytes:
        charged = max(result_bytes / _GB - (provider.egress_free_gb_per_month or 0), 0)
        add("egress of the results", charged, provider.egress_usd_per_gb, dearest.egress, f"{charged:.4g} GB")
    return Bill(tuple(lines))
