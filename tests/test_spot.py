"""Interrupted runs: the closed forms against a simulation of the same process, and against what the papers say."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidJob
from planner.spot import SpotRun, SpotTerms, best_interval_s, break_even_rate, daly_interval_s, young_interval_s


def spot_run(work_s: float, interval_s: float, write_s: float, rate: float, notice_s: float = 0) -> SpotRun:
    return SpotRun(work_s, interval_s, write_s, SpotTerms(interruptions_per_hour=rate, notice_s=notice_s))


def simulated(run: SpotRun, count: int = 8000) -> list[float]:
    """Wall times, one interruption after another."""
    draw, times = random.Random(7), []
    for _ in range(count):
        time = 0.0
        pieces = [run.undisturbed_s] if run.warned else [length for number, length in run.segments for _ in range(number)]
        for piece in pieces:
            left = piece
            while (until := draw.expovariate(run.rate)) < left:
                time += until + run.pause_s
                if run.warned:
                    time, left = time + run.write_s, left - until
            time += left
        times.append(time)
    return times


RUNS = [
    spot_run(8 * 3600, 1800, 60, 0.05),
    spot_run(8 * 3600, 1800, 60, 0.5),
    spot_run(2 * 3600, 3600, 120, 1),
    spot_run(40 * 3600, 3600, 300, 0.16),
    spot_run(5000, 7200, 20, 0.3),
    spot_run(8 * 3600, 1800, 60, 0.5, notice_s=120),
]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_mean_spread_and_chance_are_those_of_the_simulation(run: SpotRun) -> None:
    times = sorted(simulated(run))
    error = run.sd_s / math.sqrt(len(times))
    assert run.mean_s == pytest.approx(statistics.mean(times), abs=4 * error)
    assert run.sd_s == pytest.approx(statistics.pstdev(times), rel=0.06)
    for share in (0.2, 0.5, 0.8, 0.95):
        deadline = times[int(share * len(times))] + 1
        found = sum(time <= deadline for time in times) / len(times)
        assert run.probability_by(deadline) == pytest.approx(found, abs=0.02)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_the_time_by_which_it_is_over_with_a_chance_has_that_chance(run: SpotRun) -> None:
    assert run.probability_by(run.time_by(0.9)) == pytest.approx(0.9, abs=0.005) or run.warned
    assert run.probability_by(run.time_by(0.9)) >= 0.899
    assert run.probability_by(run.undisturbed_s - 1) == 0


def test_a_rate_of_zero_is_on_demand() -> None:
    run = spot_run(8 * 3600, 1800, 60, 0)
    assert run.mean_s == run.billed_s == run.undisturbed_s == 8 * 3600 + 16 * 60
    assert (run.sd_s, run.interruptions, run.lost_s) == (0, 0, 0)
    assert run.probability_by(run.undisturbed_s) == 1


def test_worked_segment() -> None:
    # One segment of 3600 s at 1 per hour: e - 1 failures, each half forgotten, and 1020 s of restart after each.
    run = spot_run(3500, 3600, 100, 1)
    assert run.interruptions == pytest.approx(math.e - 1)
    assert run.mean_s == pytest.approx((math.e - 1) * (3600 + 1020))
    assert run.lost_s == pytest.approx((math.e - 1) * 3600 - 3600)
    assert run.billed_s == pytest.approx(run.mean_s - (math.e - 1) * 600)


def test_a_notice_that_is_long_enough_loses_nothing_but_the_write() -> None:
    short, long = (spot_run(8 * 3600, 1800, 60, 0.5, notice_s=notice) for notice in (30, 60))
    assert not short.warned and long.warned
    assert long.lost_s == pytest.approx(long.interruptions * 60)
    assert long.mean_s < short.mean_s


@given(st.floats(1, 600), st.floats(0.001, 2))
def test_the_best_interval_is_best_and_daly_is_near_it(write_s: float, rate: float) -> None:
    best = best_interval_s(write_s, rate)

    def per_work(interval: float) -> float:
        return math.expm1(rate / 3600 * (interval + write_s)) / interval

    assert per_work(best) <= min(per_work(best * 0.97), per_work(best * 1.03)) * (1 + 1e-12)
    assert young_interval_s(write_s, rate) == pytest.approx(math.sqrt(2 * write_s * 3600 / rate))
    if write_s * rate / 3600 < 0.1:
        assert daly_interval_s(write_s, rate) == pytest.approx(best, rel=0.01)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_interruptions_never_shorten_a_run(first: float, second: float) -> None:
    slow, fast = (spot_run(20_000, 1800, 60, rate).mean_s for rate in (max(first, second), min(first, second)))
    assert slow >= fast * (1 - 1e-6)


def test_at_the_break_even_rate_spot_costs_what_on_demand_costs() -> None:
    run = spot_run(8 * 3600, 1800, 60, 0.1)
    rate = break_even_rate(run, spot_usd_per_hour=1.0, on_demand_usd_per_hour=2.5)
    assert spot_run(8 * 3600, 1800, 60, rate).billed_s * 1.0 == pytest.approx(run.undisturbed_s * 2.5, rel=1e-6)
    assert break_even_rate(run, 2.5, 2.5) == 0


def test_a_run_that_never_ends_says_so() -> None:
    run = spot_run(8 * 3600, 1800, 60, 3600)
    assert run.mean_s == run.billed_s == run.lost_s == run.interruptions == math.inf
    assert run.probability_by(1e9) == 0


def test_terms_that_cannot_be_are_one_sentence() -> None:
    with pytest.raises(InvalidJob, match="interruptions_per_hour is -1"):
        SpotTerms(interruptions_per_hour=-1)
