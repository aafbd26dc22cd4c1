"""Ranges of device memory and the ordered sets that the caching allocator keeps of them. Source: CUDACachingAllocator.cpp."""

from bisect import bisect_left

__all__ = ["ADDRESS_BITS", "FREE", "LIVE", "UNMAPPED", "Block", "Blocks", "Pool"]

ADDRESS_BITS = 60  # key of a free block: size above these bits, address in them; so keys are ordered as BlockComparatorSize
FREE, LIVE, UNMAPPED = range(3)


class Block:
    """A range of addresses; `left` and `right` are its neighbours in the segment."""

    __slots__ = ("address", "left", "pool", "requested", "right", "size", "state")

    def __init__(self, pool: "Pool", address: int, size: int, state: int, left: "Block | None", right: "Block | None") -> None:
        self.pool, self.address, self.size, self.state, self.left, self.right = pool, address, size, state, left, right
        self.requested = 0

    def cut(self, size: int) -> "Block":
        """Keep the first `size` bytes; what is behind them becomes the right neighbour."""
        right = self.right
        self.right = rest = Block(self.pool, self.address + size, self.size - size, self.state, self, right)
        self.size = size
        if right is not None:
            right.left = rest
        return rest


class Blocks:
    """Blocks of one state, ordered by size, then address (BlockComparatorSize)."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.blocks: list[Block] = []

    def insert(self, block: Block) -> None:
        """Add a block whose neighbours are not in here."""
        key = block.size << ADDRESS_BITS | block.address
        index = bisect_left(self.keys, key)
        self.keys.insert(index, key)
        self.blocks.insert(index, block)

    def remove(self, block: Block) -> None:
        """Take a block out."""
        index = bisect_left(self.keys, block.size << ADDRESS_BITS | block.address)
        del self.keys[index], self.blocks[index]

    def join(self, block: Block) -> None:
        """Add a block as one with its neighbours in here (free_block, try_merge_blocks)."""
        left, right, state = block.left, block.right, block.state
        if left is not None and left.state == state:
            self.remove(left)
            block.address = left.address
            block.size += left.size
            block.left = left = left.left
            if left is not None:
                left.right = block
        if right is not None and right.state == state:
            self.remove(right)
            block.size += right.size
            block.right = right = right.right
            if right is not None:
                right.left = block
        self.insert(block)


class Pool:
    """The small or the large pool (BlockPool)."""

    def __init__(self, page: int, least_rest: int) -> None:
        self.page = page  # bytes that an expandable segment maps at a time
        self.least_rest = least_rest  # a block is split where at least so much is left of it
        self.free, self.unmapped = Blocks(), Blocks()
