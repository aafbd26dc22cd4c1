"""Bills: rounding at the boundary, and what is not known."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalogues import load_providers
from planner.cost import Rates, bill, billed_hours
from planner.hardware import Provider


def provider(**fields: Any) -> Provider:
    return next(iter(load_providers().values())).model_copy(update=fields)


@pytest.mark.parametrize(
    ("seconds", "billing", "hours"),
    [
        (3600, "hour", 1), (3601, "hour", 2), (3599, "hour", 1), (0, "hour", 0), (1, "started hour", 1), (60, "minute", 1 / 60),
        (61, "minute", 2 / 60), (3600, "second", 1), (0.5, "second", 1 / 3600), (7200, "started hour", 2), (90, None, 90 / 3600),
    ],
)  # fmt: skip
def test_rounding_is_exact_at_the_boundary(seconds: float, billing: Any, hours: float) -> None:
    assert billed_hours(seconds, billing) == pytest.approx(hours, abs=1e-12)


def test_a_run_that_was_broken_up_pays_about_half_a_unit_per_start() -> None:
    # 10 h in 4 runs: half an hour more for the last, but for the chance e^-3 that it is the only one and ends on the hour; each of the
    # 3 before, with x = 0.3 interruptions per hour, 1/2 + x/12 - x^3/720 = 0.52496 h more.
    assert billed_hours(10 * 3600, "hour", runs=4) == pytest.approx(
        10 + (1 - math.exp(-3)) / 2 + 3 * (0.5 + 0.025 - 0.027 / 720), rel=1e-6
    )
    assert billed_hours(10 * 3600, "second", runs=4) == pytest.approx(10, abs=1e-3)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_rounding_of_broken_up_runs_is_that_of_a_simulation(rate: float) -> None:
    draw, total, count, starts = random.Random(3), 0.0, 20_000, 0
    for _ in range(count):
        left = 8.3  # hours, nothing lost, every machine's time rounded up by itself
        while left > 0:
            ran = min(draw.expovariate(rate), left)
            left, total, starts = left - ran, total + math.ceil(ran), starts + 1
    assert billed_hours(8.3 * 3600, "hour", runs=starts / count) == pytest.approx(total / count, rel=0.008)


@given(st.integers(0, 10**6), st.floats(1, 50), st.floats(1, 50), st.sampled_from(["second", "minute", "hour", None]))
def test_a_run_that_is_hardly_ever_broken_up_is_billed_like_a_whole_one(
    seconds: int, first: float, second: float, billing: Any
) -> None:
    assert billed_hours(seconds, billing, runs=1 + 1e-12) == pytest.approx(billed_hours(seconds, billing), abs=1e-9)
    less, more = (billed_hours(seconds, billing, runs=runs) for runs in (min(first, second), max(first, second)))
    assert less >= seconds / 3600 * (1 - 1e-12)
    assert more >= less - 0.5  # a whole run may waste nearly a unit, each broken part half of one on average


def test_worked_bill() -> None:
    terms = provider(
        billing="second", running_storage_usd_per_gb_month=0.1, stopped_storage_usd_per_gb_month=0.2, egress_usd_per_gb=0.09,
        egress_free_gb_per_month=100.0,
    )  # fmt: skip
    found = bill(2.0, 7200, terms, machines=2, disk_bytes=200e9, kept_s=730 * 3600, result_bytes=150e9)
    assert [line.usd for line in found.lines] == pytest.approx([8.0, 2 * 200 * 2 / 730 * 0.1, 200 * 0.2, 50 * 0.09])
    assert found.usd == pytest.approx(sum(line.usd or 0 for line in found.lines))
    assert found.unknown == ()


def test_what_is_not_known_is_named_and_not_zero() -> None:
    terms = provider(egress_usd_per_gb=None, egress_free_gb_per_month=None, running_storage_usd_per_gb_month=None)
    found = bill(2.0, 3600, terms, disk_bytes=1e9, result_bytes=1e9)
    assert found.unknown == ("storage while running", "egress of the results")
    assert found.usd == 2.0
    feared = bill(2.0, 3600, terms, disk_bytes=1e9, result_bytes=1e9, dearest=Rates(running=0.365, stopped=1.0, egress=0.12))
    assert feared.usd == 2.0
    assert feared.at_most_usd == pytest.approx(2.0 + 0.365 / 730 + 0.12)


@given(st.floats(0.01, 50), st.floats(0.01, 50), st.integers(0, 10**6), st.sampled_from(["second", "minute", "hour", None]))
def test_cost_is_monotone_in_price_and_time(first: float, second: float, seconds: int, billing: Any) -> None:
    terms = provider(billing=billing)
    assert bill(min(first, second), seconds, terms).usd <= bill(max(first, second), seconds, terms).usd
    assert bill(first, seconds, terms).usd <= bill(first, seconds + 1, terms).usd
