"""Interrupted runs: the closed forms against a simulation of the same process, and against what the papers say."""

import math
import random
import statistics

import pytest
from hypothesis import assume, given
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


@given(
    work_s=st.floats(1, 1e6), interval_s=st.floats(1, 1e6), write_s=st.floats(0, 900), rate=st.floats(0, 3600),
    notice_s=st.sampled_from([0, 30, 120]),
)  # fmt: skip
def test_no_interval_is_better_than_the_best(
    work_s: float, interval_s: float, write_s: float, rate: float, notice_s: float
) -> None:
    run = spot_run(work_s, interval_s, write_s, rate, notice_s)
    assume(run.mean_s < 1e12)
    assert run.best.mean_s <= run.mean_s * (1 + 1e-9)
    if run.warned:
        assert run.best.interval_s == work_s


@given(
    work_s=st.floats(1e-3, 1e7), interval_s=st.floats(1, 1e7) | st.just(math.inf), write_s=st.floats(0, 3600),
    rate=st.floats(0, 3600) | st.floats(1e-12, 1e-3), notice_s=st.sampled_from([0, 30, 120]), deadline_s=st.floats(0, 1e30),
)  # fmt: skip
def test_every_run_has_a_time_a_spread_and_a_chance(
    work_s: float, interval_s: float, write_s: float, rate: float, notice_s: float, deadline_s: float
) -> None:
    run = spot_run(work_s, interval_s, write_s, rate, notice_s)
    assert run.undisturbed_s <= run.mean_s * (1 + 1e-9)
    assert run.billed_s <= run.mean_s and 0 <= run.billed_sd_s <= run.sd_s
    assert 0 <= run.probability_by(deadline_s) <= 1


def test_no_work_is_done_at_once() -> None:
    for notice_s in (0, 120):
        run = spot_run(0, 1800, 0, 1, notice_s)
        assert (run.mean_s, run.sd_s, run.probability_by(0)) == (0, 0, 1)


def test_an_interval_that_divides_the_work_leaves_no_rest() -> None:
    assert all(len(spot_run(12345.6, 12345.6 / n, 60, 0).segments) == 2 for n in range(2, 60))
    assert all(spot_run(12345.6, 12345.6 / n, 60, 0).undisturbed_s == pytest.approx(12345.6 + 60 * n) for n in range(1, 60))
    assert spot_run(7200, math.inf, 60, 0.05).segments == ((1, 7260),)


def test_the_spread_of_rare_interruptions_is_that_of_one() -> None:
    # 16 segments of 1860 s, each lost with probability p = r 1860, uniformly within: variance 16 p E[(X + 1020)^2], p -> 0.
    square = 1860**2 / 3 + 1860 * 1020 + 1020**2
    for rate in (1e-3, 1e-6, 1e-9):
        found = spot_run(8 * 3600, 1800, 60, rate).sd_s
        assert found == pytest.approx(math.sqrt(16 * rate / 3600 * 1860 * square), rel=1e-3)


def test_the_spread_of_what_is_billed_leaves_the_waiting_out() -> None:
    run = spot_run(8 * 3600, 1800, 60, 0.5)
    at_once = SpotRun(run.work_s, run.interval_s, run.write_s, run.terms.model_copy(update={"waiting_s": 0.0}))
    assert (run.billed_s, run.billed_sd_s) == pytest.approx((at_once.mean_s, at_once.sd_s))


def test_a_break_even_that_is_never_reached_is_infinite() -> None:
    free = SpotRun(28_800, 1800, 60, SpotTerms(notice_s=120, restart_s=0))
    assert break_even_rate(free, spot_usd_per_hour=1, on_demand_usd_per_hour=1000) == math.inf


def test_a_notice_and_many_interruptions_still_have_a_chance() -> None:
    # 2000 h at one an hour, each 60 + 1020 s: by the mean, a little over one half
    run = spot_run(2000 * 3600, 3600, 60, 1, notice_s=120)
    assert run.probability_by(run.mean_s) == pytest.approx(0.5, abs=0.02)
    assert run.probability_by(run.mean_s + 2 * run.sd_s) == pytest.approx(0.977, abs=0.005)


def test_a_time_by_a_probability_that_cannot_be_is_one_sentence() -> None:
    with pytest.raises(InvalidJob, match="a probability of 1 has no time"):
        RUNS[0].time_by(1)
    assert spot_run(8 * 3600, 1800, 60, 3600).time_by(0.5) == math.inf


def test_terms_that_cannot_be_are_one_sentence() -> None:
    with pytest.raises(InvalidJob, match="interruptions_per_hour is -1"):
        SpotTerms(interruptions_per_hour=-1)
