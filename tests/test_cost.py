"""Bills: rounding at the boundary, and what is not known."""

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


def test_a_run_that_was_broken_up_pays_half_a_unit_per_start() -> None:
    assert billed_hours(10 * 3600, "hour", runs=4) == 12
    assert billed_hours(10 * 3600, "second", runs=4) == pytest.approx(10, abs=1e-3)


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
