"""Bytes inside, GiB where a person reads, in the language's format."""

import pytest

from planner.units import GiB, KiB, MiB, format_count, format_gib, format_number


def test_binary_units_are_powers_of_1024() -> None:
    assert (KiB, MiB, GiB) == (2**10, 2**20, 2**30)


@pytest.mark.parametrize(
    ("value", "decimals", "english", "turkish"),
    [(1234567.891, 1, "1,234,567.9", "1.234.567,9"), (0, 0, "0", "0"), (-1234.5, 2, "-1,234.50", "-1.234,50")],
)
def test_separators_are_those_of_the_language(value: float, decimals: int, english: str, turkish: str) -> None:
    assert format_number(value, decimals) == english
    assert format_number(value, decimals, language="tr") == turkish


@pytest.mark.parametrize(
    ("num_bytes", "english", "turkish"),
    [
        (12.34 * GiB, "12.3 GiB", "12,3 GiB"),
        (0.25 * GiB, "0.2 GiB", "0,2 GiB"),
        (64 * MiB, "64 MiB", "64 MiB"),
        (1.5 * MiB, "1.5 MiB", "1,5 MiB"),
        (-2 * GiB, "-2.0 GiB", "-2,0 GiB"),
        (1500 * GiB, "1,500.0 GiB", "1.500,0 GiB"),
    ],
)
def test_sizes_are_gib_and_small_ones_mib(num_bytes: float, english: str, turkish: str) -> None:
    assert format_gib(num_bytes) == english
    assert format_gib(num_bytes, language="tr") == turkish


@pytest.mark.parametrize(
    ("count", "english", "turkish"),
    [(6_738_415_616, "6.74 B", "6,74 Mr"), (39_976_960, "40.0 M", "40,0 Mn"), (512, "512", "512"), (40_960, "40,960", "40.960")],
)
def test_counts_of_parameters(count: float, english: str, turkish: str) -> None:
    assert format_count(count) == english
    assert format_count(count, language="tr") == turkish


def test_a_small_size_is_shown_in_a_small_unit() -> None:
    assert format_gib(48 * KiB) == "48 KiB"
    assert format_gib(8.125 * MiB) == "8.1 MiB"
    assert format_gib(48 * MiB) == "48 MiB"
