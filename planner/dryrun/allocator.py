"""PyTorch's CUDA caching allocator in pure Python: what it reserves for a sequence of allocations, and where it runs out.

Source of every rule: c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.4 to 2.13; docstrings name the function that they follow.
One device, one stream, the native backend.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.dryrun.blocks import ADDRESS_BITS, FREE, LIVE, UNMAPPED, Block, Blocks, Pool
from planner.dryrun.options import DEFAULT_OPTIONS, AllocatorOptions
from planner.units import MiB

__all__ = ["CachingAllocator", "OutOfMemory", "Replay", "Segment", "replay"]

MIN_BLOCK_BYTES = 512  # kMinBlockSize: every block is a multiple of it
SMALL_BYTES = MiB  # kSmallSize: up to here a block lies in the small pool
SMALL_BUFFER_BYTES = 2 * MiB  # kSmallBuffer: segments of the small pool
LARGE_BUFFER_BYTES = 20 * MiB  # kLargeBuffer: segments for blocks between 1 and 10 MiB
MIN_LARGE_BYTES = 10 * MiB  # kMinLargeAlloc: from here on a block gets a segment of its own size ...
ROUND_LARGE_BYTES = 2 * MiB  # kRoundLarge: ... rounded up to this

_UNLIMITED = 1 << 50  # bytes; more than any card has, and addresses stay exact in the visualiser's JavaScript


class Segment(NamedTuple):
    """Memory that the device gave; `blocks` are (bytes, bytes asked for, live) in the order of their addresses."""

    address: int
    bytes: int
    small: bool
    blocks: list[tuple[int, int, bool]]


class CachingAllocator:
    """The allocator of one device. `capacity_bytes` is what all segments may take together: the card less its context.

    `allocated_bytes` counts blocks, as torch.cuda.memory_allocated does, `requested_bytes` what was asked for.
    `on_segment` is told each segment_alloc, segment_free, segment_map and segment_unmap, its address and its bytes.
    """

    def __init__(
        self,
        options: AllocatorOptions = DEFAULT_OPTIONS,
        capacity_bytes: int | None = None,
        on_segment: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.capacity_bytes = _UNLIMITED if capacity_bytes is None else capacity_bytes
        self.allocated_bytes = self.requested_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_requested_bytes = self.peak_reserved_bytes = 0
        self._on_segment = on_segment
        self._expandable, self._divisions = options.expandable_segments, options.roundup_power2_divisions
        self._max_split = _UNLIMITED if options.max_split_size_bytes is None else options.max_split_size_bytes
        self._plain = not self._expandable and self._max_split == _UNLIMITED
        # should_split: expandable segments are split like the small pool, whatever max_split_size
        least_rest = MIN_BLOCK_BYTES if self._expandable else SMALL_BYTES + 1
        self._split_below = _UNLIMITED if self._expandable else self._max_split
        self._small, self._large = Pool(SMALL_BUFFER_BYTES, MIN_BLOCK_BYTES), Pool(LARGE_BUFFER_BYTES, least_rest)
        self._live: dict[int, Block] = {}
        self._next_address = LARGE_BUFFER_BYTES << 20  # as high as CUDA's; no address is given twice

    def malloc(self, nbytes: int) -> int | None:
        """The address of a new block; 0 for no bytes; None where memory is out: then what is live is as before."""
        if not nbytes:
            return 0
        size = self._round(nbytes) if self._divisions > 1 else -(-nbytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES
        pool = self._small if size <= SMALL_BYTES else self._large
        free = pool.free
        keys = free.keys
        index = bisect_left(keys, size << ADDRESS_BITS)
        if not self._plain:
            index = self._usable(free, index, size)
        if index < len(keys):
            del keys[index]
            block = free.blocks.pop(index)
        elif grown := self._grow(pool, size):
            block = grown
        else:
            return None
        if block.size - size >= pool.least_rest and size < self._split_below:
            free.insert(block.cut(size))
        block.state, block.requested = LIVE, nbytes
        self._live[block.address] = block
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes
        self.requested_bytes += nbytes
        if self.requested_bytes > self.peak_requested_bytes:
            self.peak_requested_bytes = self.requested_bytes
        return block.address

    def free(self, address: int) -> None:
        """Put a block back into its pool (free_block); KeyError where none lives at this address."""
        if address:
            block = self._live.pop(address)
            self.allocated_bytes -= block.size
            self.requested_bytes -= block.requested
            block.state, block.requested = FREE, 0
            block.pool.free.join(block)

    def empty_cache(self) -> None:
        """Give back whole free segments, of expandable ones whole free pages (release_cached_blocks)."""
        for pool in (self._large, self._small):
            for block in list(pool.free.blocks):
                if self._expandable:
                    self._unmap(pool, block)
                elif block.left is None and block.right is None:
                    self._release(pool, block)

    def segments(self) -> Iterator[Segment]:
        """The segments by address; each mapped range of an expandable one counts as one (snapshot)."""
        blocks = [*self._live.values(), *self._small.free.blocks, *self._large.free.blocks]
        for head in sorted(blocks, key=lambda block: block.address):
            if head.left is None or head.left.state == UNMAPPED:
                inside: list[tuple[int, int, bool]] = []
                block: Block | None = head
                while block and block.state != UNMAPPED:
                    inside.append((block.size, block.requested, block.state == LIVE))
                    block = block.right
                yield Segment(head.address, sum(size for size, _, _ in inside), head.pool is self._small, inside)

    def _round(self, nbytes: int) -> int:
        """The bytes of a block where powers of two are divided (round_size, roundup_power2_next_division)."""
        step = MIN_BLOCK_BYTES
        if nbytes > step * self._divisions:
            step = (1 << nbytes.bit_length() - 1) // self._divisions
        return -(-nbytes // step) * step

    def _usable(self, free: Blocks, index: int, size: int) -> int:
        """The first key from `index` on whose block may serve; past the last where none may (get_free_block)."""
        blocks = free.blocks
        if index == len(blocks):
            return index
        if self._expandable:
            while index + 1 < len(blocks) and _reach(blocks[index + 1]) < _reach(blocks[index]):
                index += 1
        found = blocks[index].size
        refused = found >= self._max_split if size < self._max_split else found >= size + LARGE_BUFFER_BYTES
        return len(blocks) if refused else index

    def _grow(self, pool: Pool, size: int) -> Block | None:
        """A block of memory new from the device; where it has none, cached memory goes back first (malloc, alloc_block)."""
        new = self._extend if self._expandable else self._new_segment
        block = new(pool, size)
        if block is None and self._release_enough(pool, size):
            block = new(pool, size)
        if block is None:
            self.empty_cache()
            block = new(pool, size)
        return block

    def _new_segment(self, pool: Pool, size: int) -> Block | None:
        """get_allocation_size, cudaMalloc."""
        nbytes = -(-size // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES
        if size < MIN_LARGE_BYTES:
            nbytes = SMALL_BUFFER_BYTES if size <= SMALL_BYTES else LARGE_BUFFER_BYTES
        if self.reserved_bytes + nbytes > self.capacity_bytes:
            return None
        block = Block(pool, self._addresses(nbytes), nbytes, FREE, None, None)
        self._book("segment_alloc", block.address, nbytes)
        return block

    def _release(self, pool: Pool, block: Block) -> None:
        """release_block, cudaFree."""
        pool.free.remove(block)
        self._book("segment_free", block.address, -block.size)

    def _release_enough(self, pool: Pool, size: int) -> bool:
        """Give back the oversize block that would just do, or the largest until it is enough (release_available_cached_blocks)."""
        if self._expandable or self._max_split == _UNLIMITED:
            return False
        blocks = pool.free.blocks
        index = bisect_left(pool.free.keys, size << ADDRESS_BITS)
        if index < len(blocks):
            self._release(pool, blocks[index])
            return True
        missing = size
        while missing > 0 and blocks and (block := blocks[-1]).size >= self._max_split:
            missing -= block.size
            self._release(pool, block)
        return missing <= 0

    def _extend(self, pool: Pool, size: int) -> Block | None:
        """Map behind (or around) a free block what it lacks (try_allocate_expandable_block)."""
        block = self._room(pool, size)
        if block.state == UNMAPPED and not self._map(pool, block, min(block.size, size)):
            return None
        while block.size < size:
            behind = block.right
            assert behind  # what `_room` found is free and unmapped by turns, and long enough
            if not self._map(pool, behind, min(behind.size, size - block.size)):
                return None
            block = behind
        pool.free.remove(block)
        return block

    def _room(self, pool: Pool, size: int) -> Block:
        """The first of the free and unmapped blocks in a row, lowest address first, that hold `size` (find_expandable_block)."""
        for first in sorted(pool.unmapped.blocks, key=lambda block: block.address):
            if first.left and first.left.state == FREE:
                first = first.left
            room, block = first.size, first.right
            while room < size and block and block.state != LIVE:
                room, block = room + block.size, block.right
            if room >= size:
                return first
        nbytes = max(self.capacity_bytes + self.capacity_bytes // 8, size)
        nbytes = -(-nbytes // pool.page) * pool.page
        segment = Block(pool, self._addresses(nbytes), nbytes, UNMAPPED, None, None)
        pool.unmapped.insert(segment)
        return segment

    def _map(self, pool: Pool, block: Block, nbytes: int) -> bool:
        """Map the pages that the first `nbytes` of an unmapped range need; all or none (map_block)."""
        nbytes = -(-nbytes // pool.page) * pool.page
        if self.reserved_bytes + nbytes > self.capacity_bytes:
            return False
        pool.unmapped.remove(block)
        if nbytes < block.size:
            pool.unmapped.insert(block.cut(nbytes))
        self._book("segment_map", block.address, nbytes)
        block.state = FREE
        pool.free.join(block)
        return True

    def _unmap(self, pool: Pool, block: Block) -> None:
        """Give back the whole pages of a free block; its ends stay (unmap_block)."""
        begin = -(-block.address // pool.page) * pool.page
        end = (block.address + block.size) // pool.page * pool.page
        if begin >= end:
            return
        pool.free.remove(block)
        if block.address < begin:
            before, block = block, block.cut(begin - block.address)
            pool.free.insert(before)
        if end < block.address + block.size:
            pool.free.insert(block.cut(end - begin))
        self._book("segment_unmap", begin, begin - end)
        block.state = UNMAPPED
        pool.unmapped.join(block)

    def _addresses(self, nbytes: int) -> int:
        """Addresses that were not given before; they begin at a page of either pool."""
        address = self._next_address
        self._next_address += -(-nbytes // LARGE_BUFFER_BYTES) * LARGE_BUFFER_BYTES
        return address

    def _book(self, action: str, address: int, nbytes: int) -> None:
        """Count memory that comes from the device, or goes back where `nbytes` is negative."""
        self.reserved_bytes += nbytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        if self._on_segment:
            self._on_segment(action, address, abs(nbytes))


def _reach(block: Block) -> int:
    """What a free block can grow to: its bytes and those of the unmapped range behind it (get_free_block, expandable_size)."""
    return block.size + (block.right.size if block.right and block.right.state == UNMAPPED else 0)


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Where a replay stopped, in bytes. What was cached, but of no use to the request, is `reserved_bytes - allocated_bytes`."""

    position: int  # of the event
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int  # after all went back that could
    free_bytes: int  # of the capacity


@dataclass(frozen=True, slots=True)
class Replay:
    """The bytes after each event that succeeded, their peaks, and why the replay stopped where it did before the end."""

    allocated: list[int]
    reserved: list[int]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    out_of_memory: OutOfMemory | None


def replay(
    events: Sequence[int],
    sizes: Sequence[int],
    *,
    options: AllocatorOptions = DEFAULT_OPTIONS,
    capacity_bytes: int | None = None,
    empty_cache_at: frozenset[int] = frozenset(),
) -> Replay:
    """Run a log through an allocator: event i >= 0 is the birth of allocation i with `sizes[i]` bytes, ~i (-1 - i) its death.

    `empty_cache_at` holds positions in `events` before which torch.cuda.empty_cache is called.
    """
    allocator = CachingAllocator(options, capacity_bytes)
    malloc, free = allocator.malloc, allocator.free
    allocated: list[int] = []
    reserved: list[int] = []
    addresses = [-1] * len(sizes)  # -1: not alive
    out_of_memory = None
    for position, event in enumerate(events):
        if position in empty_cache_at:
            allocator.empty_cache()
        if event >= 0:
            address = malloc(sizes[event])
            if address is None:
                out_of_memory = OutOfMemory(
                    position,
                    sizes[event],
                    allocator.allocated_bytes,
                    allocator.reserved_bytes,
                    allocator.capacity_bytes - allocator.reserved_bytes,
                )
                break
            addresses[event] = address
        else:
            free(addresses[~event])
            addresses[~event] = -1
        allocated.append(allocator.allocated_bytes)
        reserved.append(allocator.reserved_bytes)
    return Replay(allocated, reserved, allocator.peak_allocated_bytes, allocator.peak_reserved_bytes, out_of_memory)
