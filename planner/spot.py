"""Interrupted runs: how long a job takes on spot capacity, how sure that is, and how often to write a checkpoint.

The process: W seconds of useful work; a checkpoint, which blocks for d seconds, after every t seconds of work and at the end;
interruptions at rate r per second of running time (Poisson); after each, R seconds pass before work goes on, and cannot themselves
be interrupted. Without notice all since the last checkpoint is lost. With a notice of at least d seconds the job writes a
checkpoint within it, and loses nothing but those d and R seconds. tests/test_spot.py simulates the same process.
"""

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from pydantic import Field, NonNegativeFloat

from planner.architecture import Record
from planner.assumption import Assumption
from planner.errors import InvalidJob

__all__ = [
    "INTERRUPTIONS_PER_HOUR",
    "RESTART_S",
    "WAITING_S",
    "SpotRun",
    "SpotTerms",
    "best_interval_s",
    "break_even_rate",
    "daly_interval_s",
    "young_interval_s",
]

INTERRUPTIONS_PER_HOUR = Assumption(
    value=0.05, low=0.0003, high=0.16,
    source="assumed; no provider publishes it by the hour. Low: the top band of AWS' Spot Instance Advisor, over 20 % a month "
    "(-ln 0.8 / 730 h); high: "
    "10 to 16 % an hour seen on EC2 P3 (Thorpe et al. 2023, NSDI, Bamboo, sec. 3)",
)  # fmt: skip
WAITING_S = Assumption(
    value=600, low=60, high=14_400,
    source="assumed; no provider publishes it: a minute where capacity is free, hours for scarce cards",
)  # fmt: skip
RESTART_S = Assumption(
    value=420, low=120, high=1800,
    source="assumed: a boot of 2 to 4 minutes from a prepared image, then model and checkpoint read from a volume",
)  # fmt: skip
_NEVER = 30.0  # interruptions expected in one segment: it takes e^30 tries, 300,000 years at one a second


class SpotTerms(Record):
    """What interrupts a run and what a restart takes. Raises InvalidJob, one sentence that names the field."""

    interruptions_per_hour: NonNegativeFloat = Field(default=INTERRUPTIONS_PER_HOUR.value, le=3600, allow_inf_nan=False)
    notice_s: NonNegativeFloat = Field(default=0.0, allow_inf_nan=False)
    waiting_s: NonNegativeFloat = Field(default=WAITING_S.value, allow_inf_nan=False)  # for new capacity; not billed
    # boot, environment, model and checkpoint load; billed
    restart_s: NonNegativeFloat = Field(default=RESTART_S.value, allow_inf_nan=False)


@dataclass(frozen=True)
class SpotRun:
    """`work_s` seconds of work with a checkpoint of `write_s` seconds after every `interval_s` (more than 0) of them."""

    work_s: float
    interval_s: float
    write_s: float
    terms: SpotTerms

    @property
    def rate(self) -> float:
        """Interruptions per second of running time; none where there is less than one in a million years."""
        per_hour = self.terms.interruptions_per_hour
        return per_hour / 3600 if per_hour > 1e-10 else 0.0

    @property
    def pause_s(self) -> float:
        """Between an interruption and the next second of work."""
        return self.terms.waiting_s + self.terms.restart_s

    @property
    def warned(self) -> bool:
        """Whether the notice is long enough for a checkpoint."""
        return self.terms.notice_s >= self.write_s and self.terms.notice_s > 0

    @cached_property
    def segments(self) -> tuple[tuple[int, float], ...]:
        """(how many, seconds each with its checkpoint): the full intervals, if any, and what is left for the last."""
        # rounded: work / (work / 3) is not to leave a rest
        full = max(math.ceil(round(self.work_s / self.interval_s, 9)) - 1, 0)
        if not full:
            return ((1, self.work_s + self.write_s),)
        return ((full, self.interval_s + self.write_s), (1, self.work_s - full * self.interval_s + self.write_s))

    @cached_property
    def undisturbed_s(self) -> float:
        """Work and checkpoints, with no interruption."""
        return sum(count * length for count, length in self.segments)

    @cached_property
    def interruptions(self) -> float:
        """Expected number: a segment of a seconds succeeds with probability e^(-r a) each time that it is tried."""
        if self.warned:
            return self.rate * self.undisturbed_s
        return sum(count * _failures(self.rate * length) for count, length in self.segments)

    @cached_property
    def mean_s(self) -> float:
        """Expected wall time. Without notice (e^(r a) - 1) (1 / r + R) per segment: Daly 2006, FGCS 22, eq. 13, R not interrupted."""
        if not self.rate:
            return self.undisturbed_s
        if self.warned:
            return self.undisturbed_s + self.interruptions * (self.write_s + self.pause_s)
        return self.interruptions * (1 / self.rate + self.pause_s)

    @property
    def lost_s(self) -> float:
        """Expected seconds of work and writing that are done again, or spent on checkpoints in a notice."""
        if self.interruptions == math.inf:
            return math.inf
        return self.mean_s - self.undisturbed_s - self.interruptions * self.pause_s

    @property
    def billed_s(self) -> float:
        """Expected time that is billed: all but the waiting for capacity."""
        return self.mean_s - self.interruptions * self.terms.waiting_s if self.interruptions < math.inf else math.inf

    @property
    def sd_s(self) -> float:
        """Standard deviation of the wall time."""
        return self._sd(self.pause_s)

    @property
    def billed_sd_s(self) -> float:
        """Standard deviation of the time that is billed."""
        return self._sd(self.terms.restart_s)

    def _sd(self, pause_s: float) -> float:
        if not self.rate:
            return 0.0
        if self.warned:
            return math.sqrt(self.interruptions) * (self.write_s + pause_s)
        return math.sqrt(sum(count * self._segment_variance(length, pause_s) for count, length in self.segments))

    def _segment_variance(self, length: float, pause_s: float) -> float:
        """Of a + sum over N failures of (X + R): N is geometric, X an exponential time that is shorter than the segment."""
        r, a = self.rate, length
        failures = _failures(r * a)
        if r * a < 1e-4:  # the closed forms are differences of large numbers there: their series
            mean, square = a / 2 - r * a**2 / 12, a**2 / 3 - r * a**3 / 12
        else:
            mean = 1 / r - a / failures
            square = 2 / r**2 - (a**2 + 2 * a / r) / failures
        pause = mean + pause_s
        return failures * (square - mean * mean) + failures * (failures + 1) * pause * pause

    @property
    def best(self) -> "SpotRun":
        """The same run with the interval of least expected time, among equal ones that divide the work.

        With enough notice one checkpoint, at the end: more only take time. Else n intervals, n beside work / `best_interval_s`: the
        expected time n (e^(r (W / n + d)) - 1) (1 / r + R) is convex in n.
        """
        if self.warned or not self.rate:
            return replace(self, interval_s=self.work_s)
        number = self.work_s / best_interval_s(self.write_s, self.terms.interruptions_per_hour)
        counts = (max(math.floor(number), 1), max(math.ceil(number), 1))
        return min((replace(self, interval_s=self.work_s / count) for count in counts), key=lambda run: run.mean_s)

    def probability_by(self, deadline_s: float) -> float:
        """Probability that the run is over `deadline_s` seconds after its start.

        With notice a Poisson sum. Without, the Laplace transform of the time is inverted by the Euler method of Abate and Whitt
        1995, ORSA J. Computing 7, sec. 1. Measured: at 370 deadlines of each of 11
        runs within 0.0014 of three simulations of a million each, which is their own 95 % band; it can waver by 0.0007.
        """
        spare = deadline_s - self.undisturbed_s
        if spare < 0:
            return 0.0
        if not self.interruptions:
            return 1.0
        if self.mean_s == math.inf:
            return 0.0
        if self.warned:
            return _poisson_cdf(int(spare / max(self.write_s + self.pause_s, 1e-9)), self.interruptions)
        never = math.exp(-self.rate * self.undisturbed_s)
        if spare == 0 or spare < self.pause_s:  # one interruption takes longer than that
            return never

        def transform(s: complex) -> complex:
            """Of the extra time beyond the undisturbed, the chance of none taken out; over s, for the distribution function."""
            log = complex(-self.rate * self.undisturbed_s)
            for count, length in self.segments:
                failure = self.rate / (self.rate + s) * (1 - cmath.exp(-(self.rate + s) * length)) * cmath.exp(-s * self.pause_s)
                log -= count * cmath.log(1 - failure)
            return (cmath.exp(log) - never) / s

        return min(max(never + _euler_inversion(transform, spare), 0.0), 1.0)

    def time_by(self, probability: float) -> float:
        """Seconds by which the run is over with that probability; infinite where it has no end.

        Raises InvalidJob unless the probability is between 0 and 0.9999, beyond which the inversion does not reach.
        """
        if not 0 <= probability <= 0.9999:
            raise InvalidJob(
                "a probability of {given} has no time; it must be between 0 and 0.9999", field="probability", given=probability
            )
        if self.mean_s == math.inf:
            return math.inf
        low, high = self.undisturbed_s, self.mean_s + 3 * self.sd_s + 1
        while self.probability_by(high) < probability:
            high *= 2
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if self.probability_by(middle) >= probability else (middle, high)
        return high


def _failures(expected: float) -> float:
    """e^x - 1: how often a segment in which x interruptions are expected fails before it succeeds; infinite where it never does."""
    return math.expm1(expected) if expected < _NEVER else math.inf


def _poisson_cdf(count: int, mean: float) -> float:
    """P(N <= count); terms more than 12 standard deviations off are nothing."""
    width = 12 * math.sqrt(mean) + 30
    terms = range(max(0, int(mean - width)), min(count, int(mean + width)) + 1)
    return min(sum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in terms), 1.0)


def _euler_inversion(transform: Callable[[complex], complex], at: float, terms: int = 60, averaged: int = 14) -> float:
    """The function whose Laplace transform is given, at one point. Source: Abate and Whitt 1995, ORSA J. Computing 7, eqs. 10-13."""
    A = 18.4  # discretisation error e^-A
    step = math.exp(A / 2) / at
    total = step / 2 * transform(complex(A / (2 * at), 0)).real
    partial: list[float] = []
    for k in range(1, terms + averaged + 1):
        total += step * (-1) ** k * transform(complex(A, 2 * k * math.pi) / (2 * at)).real
        if k >= terms:
            partial.append(total)
    return sum((math.comb(averaged, j) * value for j, value in enumerate(partial)), 0.0) / 2.0**averaged


def young_interval_s(write_s: float, interruptions_per_hour: float) -> float:
    """sqrt(2 d / r): Young 1974, CACM 17(9). Infinite where nothing interrupts."""
    return math.sqrt(2 * write_s / (interruptions_per_hour / 3600)) if interruptions_per_hour else math.inf


def daly_interval_s(write_s: float, interruptions_per_hour: float) -> float:
    """Young's with the next terms: Daly 2006, Future Generation Computer Systems 22, eq. 37. Infinite where nothing interrupts."""
    if not interruptions_per_hour:
        return math.inf
    mean = 3600 / interruptions_per_hour
    if write_s >= 2 * mean:
        return mean
    x = math.sqrt(write_s / (2 * mean))
    return 2 * mean * x * (1 + x / 3 + x**2 / 9) - write_s


def best_interval_s(write_s: float, interruptions_per_hour: float) -> float:
    """The interval of least expected time in the process above: r t = 1 + W(-e^(-1 - r d)), W Lambert's function.

    Where the derivative of (e^(r (t + d)) - 1) / t is zero. Infinite where nothing interrupts; a write of no time has none.
    """
    if not interruptions_per_hour:
        return math.inf
    rate = interruptions_per_hour / 3600
    low, high = 0.0, 1.0  # of r t: the logarithm of e^(r d) e^x (1 - x) falls from r d, and is 0 at the answer
    for _ in range(60):
        x = (low + high) / 2
        low, high = (x, high) if rate * write_s + (x + math.log1p(-x)) > 0 else (low, x)
    return high / rate


def break_even_rate(run: SpotRun, spot_usd_per_hour: float, on_demand_usd_per_hour: float) -> float:
    """Interruptions per hour at which the billed time costs on spot what the undisturbed run costs on demand.

    0 where spot is dearer; infinite where not even 3,600 an hour make it so.
    """
    limit = run.undisturbed_s * on_demand_usd_per_hour / spot_usd_per_hour

    def billed(rate: float) -> float:
        terms = run.terms.model_copy(update={"interruptions_per_hour": rate})
        return SpotRun(run.work_s, run.interval_s, run.write_s, terms).billed_s

    if limit <= run.undisturbed_s:
        return 0.0
    if billed(3600) < limit:
        return math.inf
    low, high = 0.0, 1.0
    while billed(high) < limit:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if billed(middle) < limit else (low, middle)
    return low
