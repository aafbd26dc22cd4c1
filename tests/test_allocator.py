"""The caching allocator's rules by worked numbers, against a naive second one, and what must hold for every log."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.dryrun.allocator import CachingAllocator, OutOfMemory, replay
from planner.dryrun.options import AllocatorOptions, parse_options
from planner.errors import InvalidJob
from planner.units import GiB, KiB, MiB

EXPANDABLE = AllocatorOptions(expandable_segments=True)
OVERSIZE = AllocatorOptions(max_split_size_bytes=32 * MiB)
MODES = [
    AllocatorOptions(),
    EXPANDABLE,
    OVERSIZE,
    AllocatorOptions(roundup_power2_divisions=4),
    AllocatorOptions(expandable_segments=True, max_split_size_bytes=32 * MiB, roundup_power2_divisions=8),
]


def give(allocator: CachingAllocator, *sizes: float) -> list[int]:
    """Addresses of blocks for requests of so many MiB."""
    addresses = [allocator.malloc(round(size * MiB)) for size in sizes]
    assert None not in addresses
    return addresses  # type: ignore[return-value]


def held(allocator: CachingAllocator) -> tuple[float, float]:
    """MiB allocated and reserved."""
    return allocator.allocated_bytes / MiB, allocator.reserved_bytes / MiB


# ---- one rule at a time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "allocated", "reserved"),
    [
        (0, 0, 0),
        (1, 512, 2 * MiB),
        (512, 512, 2 * MiB),
        (513, 1024, 2 * MiB),
        (MiB, MiB, 2 * MiB),
        (MiB + 1, MiB + 512, 20 * MiB),
        (10 * MiB - 512, 10 * MiB - 512, 20 * MiB),
        (10 * MiB, 10 * MiB, 10 * MiB),
        (10 * MiB + 1, 10 * MiB + 512, 12 * MiB),
        (11 * MiB - 512, 11 * MiB - 512, 12 * MiB),
        (11 * MiB, 12 * MiB, 12 * MiB),  # what is left, 1 MiB, is not split off, and so counts
        (GiB, GiB, GiB),
    ],
)
def test_a_request_takes_a_block_of_a_new_segment(nbytes: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    address = allocator.malloc(nbytes)
    assert (allocator.requested_bytes, allocator.allocated_bytes, allocator.reserved_bytes) == (nbytes, allocated, reserved)
    assert address is not None
    allocator.free(address)
    assert (allocator.requested_bytes, allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0, reserved)
    assert allocator.peak_requested_bytes == nbytes
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (allocated, reserved)


def test_small_blocks_share_a_segment_to_the_last_512_bytes() -> None:
    allocator = CachingAllocator()
    first, second, third = give(allocator, 1, 1 - 512 / MiB, 512 / MiB)
    assert (second - first, third - first) == (MiB, 2 * MiB - 512)
    assert held(allocator) == (2, 2)
    give(allocator, 512 / MiB)
    assert allocator.reserved_bytes == 4 * MiB


def test_small_and_large_requests_never_share() -> None:
    allocator = CachingAllocator()
    give(allocator, 2, 1 / 1024)
    assert allocator.reserved_bytes == 22 * MiB


def test_a_large_rest_up_to_1_mib_stays_with_its_block() -> None:
    allocator = CachingAllocator()
    give(allocator, 9.5, 9.5)  # 20 - 9.5 - 9.5 = 1
    assert held(allocator) == (20, 20)
    allocator = CachingAllocator()
    give(allocator, 9, 9, 2)  # 2 are left for the third
    assert held(allocator) == (20, 20)


def test_best_fit_then_lowest_address() -> None:
    allocator = CachingAllocator()
    blocks = give(allocator, 40, 24, 30, 24)
    for block in reversed(blocks):
        allocator.free(block)
    assert give(allocator, 22, 22, 22, 22) == [blocks[1], blocks[3], blocks[2], blocks[0]]
    assert allocator.reserved_bytes == 118 * MiB


def test_free_neighbours_become_one_but_segments_do_not() -> None:
    allocator = CachingAllocator()
    left, middle, right = give(allocator, 6, 6, 8)
    for block in (left, right, middle):  # the last one has a free neighbour on either side
        allocator.free(block)
    assert [len(segment.blocks) for segment in allocator.segments()] == [1]
    assert give(allocator, 20) == [left]
    first, second = give(allocator, 10, 10)
    allocator.free(first)
    allocator.free(second)
    give(allocator, 20)
    assert held(allocator) == (40, 60)


def test_only_whole_segments_go_back() -> None:
    allocator = CachingAllocator()
    left, right, alone = give(allocator, 8, 8, 50)
    allocator.free(right)
    allocator.free(alone)
    allocator.empty_cache()
    assert held(allocator) == (8, 20)
    assert give(allocator, 12) == [right]
    allocator.free(left)
    allocator.empty_cache()
    assert held(allocator) == (12, 20)
    allocator.free(right)
    allocator.empty_cache()
    assert held(allocator) == (0, 0)


def test_cached_segments_go_back_before_memory_is_out() -> None:
    allocator = CachingAllocator(capacity_bytes=50 * MiB)
    first, _ = give(allocator, 20, 20)
    allocator.free(first)
    give(allocator, 30)
    assert held(allocator) == (50, 50)
    assert allocator.peak_reserved_bytes == 50 * MiB


def test_out_of_memory_says_what_was_cached_in_vain() -> None:
    # 8 of a segment of 20 die, but the other 8 keep it; 40 - 20 are free on the card, and 30 are asked for
    run = replay([0, 1, ~1, 2, 3], [8 * MiB, 8 * MiB, 30 * MiB, MiB], capacity_bytes=40 * MiB)
    assert run.out_of_memory == OutOfMemory(3, 30 * MiB, 8 * MiB, 20 * MiB, 20 * MiB)
    assert run.allocated == [8 * MiB, 16 * MiB, 8 * MiB]
    assert run.reserved == [20 * MiB] * 3


@pytest.mark.parametrize("options", MODES)
def test_a_failed_request_leaves_what_lives_alone(options: AllocatorOptions) -> None:
    allocator = CachingAllocator(options, 100 * MiB)
    kept, gone = give(allocator, 15, 25)
    allocator.free(gone)
    before = allocator.allocated_bytes, allocator.requested_bytes
    assert allocator.malloc(90 * MiB) is None
    assert (allocator.allocated_bytes, allocator.requested_bytes) == before
    give(allocator, 25)  # and the next one may succeed
    allocator.free(kept)


# ---- options ---------------------------------------------------------------------------------------------------------


def test_expandable_segments_map_only_the_pages_that_are_missing() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    give(allocator, 1 / 1024)
    assert allocator.reserved_bytes == 2 * MiB
    _, last = give(allocator, 2, 25)  # 18 of the first 20 are free, one page more does
    assert held(allocator) == (27 + 1 / 1024, 42)
    allocator.free(last)
    give(allocator, 38)
    assert allocator.reserved_bytes == 42 * MiB


def test_expandable_segments_split_to_512_bytes() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    give(allocator, 19.5)
    assert held(allocator) == (19.5, 20)
    allocator = CachingAllocator(AllocatorOptions(expandable_segments=True, max_split_size_bytes=32 * MiB))
    give(allocator, 35)  # whatever max_split_size
    assert held(allocator) == (35, 40)


def test_expandable_segments_waste_less_than_a_page_where_others_fragment() -> None:
    sizes = [12 * MiB] * 5 + [30 * MiB] * 2
    events = [0, 1, 2, 3, 4, ~0, ~1, ~2, ~3, ~4, 5, 6]
    assert replay(events, sizes).peak_reserved_bytes == 120 * MiB
    run = replay(events, sizes, options=EXPANDABLE)
    assert (run.peak_allocated_bytes, run.peak_reserved_bytes) == (60 * MiB, 60 * MiB)


def test_expandable_segments_give_back_whole_pages_from_the_middle() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    first, middle, last = give(allocator, 20, 40, 20)
    allocator.free(middle)
    inside = give(allocator, 5)[0]
    allocator.empty_cache()  # 15 of a page stay
    assert (inside, held(allocator)) == (middle, (45, 60))
    assert give(allocator, 35) == [middle + 5 * MiB]  # and are filled up with the page behind them
    assert held(allocator) == (80, 80)
    assert give(allocator, 5) == [last + 20 * MiB]
    allocator.free(first)
    allocator.empty_cache()
    assert held(allocator) == (65, 80)


def test_expandable_segments_keep_the_ends_of_what_they_give_back() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    _, middle, last = give(allocator, 5, 50, 5)
    allocator.free(middle)
    allocator.empty_cache()  # of 5 to 55 the page from 20 to 40
    assert held(allocator) == (10, 40)
    assert give(allocator, 15, 15) == [last - 15 * MiB, middle]  # the first could grow, so it is spared
    assert held(allocator) == (40, 40)


def test_expandable_segments_obey_the_capacity() -> None:
    allocator = CachingAllocator(EXPANDABLE, 50 * MiB)
    first, second = give(allocator, 20, 20)
    assert allocator.malloc(2 * MiB) is None  # a third page would make 60
    allocator.free(first)
    assert give(allocator, 2) == [first]
    allocator.free(second)
    assert allocator.malloc(41 * MiB) is None
    assert give(allocator, 38) == [first + 2 * MiB]


def test_best_fit_of_expandable_segments_spares_the_end() -> None:
    """Best fit counts what the last block can grow to: the bigger hole before it is taken."""
    allocator = CachingAllocator(EXPANDABLE)
    hole, _ = give(allocator, 18, 15)  # 7 are free at the end
    allocator.free(hole)
    assert give(allocator, 6) == [hole]


def test_blocks_from_max_split_size_on_are_neither_split_nor_spent_on_small_requests() -> None:
    allocator = CachingAllocator(OVERSIZE)
    big = give(allocator, 64)[0]
    allocator.free(big)
    give(allocator, 8)  # does not touch the 64
    assert held(allocator) == (8, 84)
    give(allocator, 44)  # would waste 20 of them
    assert held(allocator) == (52, 128)
    assert give(allocator, 44.5) == [big]  # wastes 19.5, and they count
    assert held(allocator) == (116, 128)


def test_below_max_split_size_blocks_are_split_as_ever() -> None:
    allocator = CachingAllocator(OVERSIZE)
    block = give(allocator, 30)[0]
    allocator.free(block)
    give(allocator, 12, 12)
    assert held(allocator) == (24, 30)


@pytest.mark.parametrize(
    ("request_mib", "capacity_mib", "left_mib"),
    [
        (30, 110, 64),  # the smallest cached block of at least 32 goes: 40
        (42, 110, 40),  # of at least 42: 64
        (100, 110, 0),  # no block has 100: the largest go until 100 are free
    ],
)
def test_with_max_split_size_only_as_much_cache_goes_back_as_it_takes(request_mib: int, capacity_mib: int, left_mib: int) -> None:
    allocator = CachingAllocator(OVERSIZE, capacity_mib * MiB)
    for block in give(allocator, 64, 40):
        allocator.free(block)
    give(allocator, request_mib)
    assert allocator.reserved_bytes == (left_mib + request_mib) * MiB


def test_where_oversize_blocks_are_not_enough_all_cache_goes_back() -> None:
    allocator = CachingAllocator(OVERSIZE, 150 * MiB)
    _, *cached = give(allocator, 30, 64, 20)
    for block in cached:
        allocator.free(block)
    give(allocator, 100)  # 64 and the free 36 would do, but the rule looks at the 64 only
    assert held(allocator) == (130, 130)


def test_power_of_two_divisions() -> None:
    def block(nbytes: int, divisions: int) -> int:
        allocator = CachingAllocator(AllocatorOptions(roundup_power2_divisions=divisions))
        allocator.malloc(nbytes)
        return allocator.allocated_bytes

    assert block(1200 * MiB, 4) == 1280 * MiB  # 1024, 1280, 1536, 1792, 2048
    assert block(1281 * MiB, 4) == 1536 * MiB
    assert block(1800 * MiB, 4) == 2048 * MiB
    assert block(1200 * MiB, 8) == 1280 * MiB  # in steps of 128
    assert block(1024 * MiB, 4) == 1024 * MiB
    assert block(1200 * MiB, 1) == block(1200 * MiB, 0) == 1200 * MiB
    assert block(5000, 4) == 5 * KiB  # 4096 / 4 = 1024
    assert block(2048, 4) == 2 * KiB
    assert block(1025, 4) == 1536  # up to 512 x 4 bytes in steps of 512 as ever


def test_options_in_the_syntax_of_the_environment_variable() -> None:
    assert parse_options("") == AllocatorOptions()
    assert parse_options("expandable_segments:True") == EXPANDABLE
    assert parse_options(" max_split_size_mb : 32 ,") == OVERSIZE
    both = "expandable_segments:False,max_split_size_mb:128,roundup_power2_divisions:4"
    assert parse_options(both) == AllocatorOptions(max_split_size_bytes=128 * MiB, roundup_power2_divisions=4)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "expandable_segment:True",
            "the allocator option 'expandable_segment' is unknown here; the known ones are expandable_segm",
        ),
        ("expandable_segments:true", "expandable_segments is 'true'; it must be True, False"),
        ("expandable_segments", "expandable_segments is ''; it must be True, False"),
        ("max_split_size_mb:lots", "max_split_size_mb is 'lots'; it must be a number"),
        ("max_split_size_mb:10", "max_split_size_mb is 10; it must be at least 20"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions is 3; it must be 0, 1, 2, 4"),
        ("roundup_power2_divisions:[256:1,>:8]", "roundup_power2_divisions is '[256:1'; it must be a number"),
    ],
)
def test_a_mistyped_option_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_options(text)
    assert str(caught.value).startswith(sentence)


# ---- logs ------------------------------------------------------------------------------------------------------------


def test_the_cache_can_be_emptied_before_an_event() -> None:
    events, sizes = [0, ~0, 1, ~1], [30 * MiB, 40 * MiB]
    assert replay(events, sizes).reserved == [30 * MiB, 30 * MiB, 70 * MiB, 70 * MiB]
    emptied = replay(events, sizes, empty_cache_at=frozenset({2}))
    assert emptied.reserved == [30 * MiB, 30 * MiB, 40 * MiB, 40 * MiB]
    assert emptied.peak_reserved_bytes == 40 * MiB


@pytest.mark.parametrize("events", [[0, ~0, 1, ~0], [~0]])
def test_what_is_not_alive_cannot_die(events: list[int]) -> None:
    with pytest.raises(KeyError):
        replay(events, [1, 1])


class Naive:
    """The rules for no options and no limit, written once more without any index: (bytes, live) per segment, in order."""

    def __init__(self) -> None:
        self.segments: list[list[list[int]]] = []
        self.small: list[bool] = []

    def malloc(self, nbytes: int) -> list[int]:
        size = (nbytes + 511) // 512 * 512
        small = size <= MiB
        fits = [
            (block[0], s, b)
            for s, segment in enumerate(self.segments)
            for b, block in enumerate(segment)
            if self.small[s] == small and not block[1] and block[0] >= size
        ]
        if not fits:
            new = 2 * MiB if small else 20 * MiB if size < 10 * MiB else (size + 2 * MiB - 1) // (2 * MiB) * (2 * MiB)
            self.segments.append([[new, 0]])
            self.small.append(small)
            fits = [(new, len(self.segments) - 1, 0)]
        _, s, b = min(fits)
        block = self.segments[s][b]
        rest = block[0] - size
        if rest >= 512 if small else rest > MiB:
            block[0] = size
            self.segments[s].insert(b + 1, [rest, 0])
        block[1] = 1
        return block

    def free(self, block: list[int]) -> None:
        block[1] = 0
        for segment in self.segments:
            for b in range(len(segment) - 1, 0, -1):
                if not segment[b][1] and not segment[b - 1][1]:
                    segment[b - 1][0] += segment.pop(b)[0]

    def held(self) -> tuple[int, int]:
        blocks = [block for segment in self.segments for block in segment]
        return sum(size for size, live in blocks if live), sum(size for size, _ in blocks)


SIZES = st.one_of(
    st.integers(0, 4 * KiB),
    st.integers(1, 2 * MiB),
    st.sampled_from([MiB, MiB + 1, 2 * MiB, 9 * MiB, 10 * MiB, 11 * MiB, 20 * MiB, 32 * MiB, 52 * MiB]),
    st.integers(1, 80 * MiB),
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Events and sizes; about as many deaths as births, of any of the living."""
    sizes: list[int] = []
    events: list[int] = []
    live: list[int] = []
    for size, which in draw(st.lists(st.tuples(st.none() | SIZES, st.integers(0, 1000)), max_size=60)):
        if size is not None:
            live.append(len(sizes))
            events.append(len(sizes))
            sizes.append(size)
        elif live:
            events.append(~live.pop(which % len(live)))
    return events, sizes


@settings(max_examples=80, deadline=None)
@given(log=logs())
def test_a_naive_allocator_agrees(log: tuple[list[int], list[int]]) -> None:
    events, sizes = log
    run, naive, blocks = replay(events, sizes), Naive(), {}
    for position, event in enumerate(events):
        if event >= 0:
            blocks[event] = naive.malloc(sizes[event]) if sizes[event] else None
        elif block := blocks[~event]:
            naive.free(block)
        assert (run.allocated[position], run.reserved[position]) == naive.held()


@pytest.mark.parametrize("options", MODES)
@settings(max_examples=25, deadline=None)
@given(log=logs(), capacity_mib=st.none() | st.integers(20, 300), empty_cache_at=st.frozensets(st.integers(0, 40), max_size=10))
def test_blocks_lie_apart_inside_what_is_reserved(
    options: AllocatorOptions, log: tuple[list[int], list[int]], capacity_mib: int | None, empty_cache_at: frozenset[int]
) -> None:
    events, sizes = log
    capacity = None if capacity_mib is None else capacity_mib * MiB
    allocator = CachingAllocator(options, capacity)
    live: dict[int, int] = {}
    for position, event in enumerate(events):
        if position in empty_cache_at:
            allocator.empty_cache()
        if event < 0:
            allocator.free(live.pop(~event, 0))
        elif address := allocator.malloc(sizes[event]):
            live[event] = address
        assert allocator.requested_bytes == sum(sizes[i] for i in live)
        assert allocator.requested_bytes <= allocator.allocated_bytes <= allocator.reserved_bytes
        assert capacity is None or allocator.reserved_bytes <= capacity
        segments = list(allocator.segments())
        assert sum(segment.bytes for segment in segments) == allocator.reserved_bytes
        found: dict[int, int] = {}
        end = 0
        for segment in segments:
            assert segment.address >= end
            end = segment.address
            for (size, requested, alive), following in zip(segment.blocks, [*segment.blocks[1:], None], strict=True):
                assert requested <= size * alive
                assert alive or following is None or following[2], "two free neighbours"
                if alive:
                    found[end] = requested
                end += size
        assert found == {address: sizes[i] for i, address in live.items()}
    for address in live.values():
        allocator.free(address)
    allocator.empty_cache()
    assert (allocator.requested_bytes, allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0, 0)


@pytest.mark.parametrize("options", MODES)
@settings(max_examples=25, deadline=None)
@given(log=logs())
def test_a_replay_repeats_and_its_own_peak_is_room_enough(options: AllocatorOptions, log: tuple[list[int], list[int]]) -> None:
    events, sizes = log
    run = replay(events, sizes, options=options)
    assert run.out_of_memory is None
    assert run == replay(events, sizes, options=options, capacity_bytes=run.peak_reserved_bytes)
    assert run.peak_allocated_bytes == max(run.allocated, default=0)
    assert run.peak_reserved_bytes == max(run.reserved, default=0)
    alive = list(accumulate(sizes[event] if event >= 0 else -sizes[~event] for event in events))
    too_little = max(alive, default=0) - 1  # of what was asked for: with max_split_size a block may be larger than its request
    if too_little > 0:
        stopped = replay(events, sizes, options=options, capacity_bytes=too_little).out_of_memory
        assert stopped is not None
        assert stopped.free_bytes == too_little - stopped.reserved_bytes >= 0
