"""How many cycles accesses to shared memory take: it has 32 banks of 4-byte words, and a bank gives one word a cycle.

Threads that access the same word share it (CUDA C++ Programming Guide, shared memory of compute capability 5.x and
later). A request of a warp is taken to be split so that no part moves more than 128 bytes: 32 threads of 4 bytes or
less, 16 of 8 or 8 of 16 bytes make a part. The guide leaves that open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import gcd

from heron_asp.errors import InternalError

BANKS, WORD = 32, 4
LINE = BANKS * WORD  # bytes that all banks give in a cycle
WARP = 32
_MATRIX_ROWS, _MATRIX_ROW_BYTES = 8, 16  # of the 8x8 matrices of 16-bit elements that `ldmatrix` loads


def part_cycles(addresses: Iterable[int], nbytes: int) -> int:
    """Cycles of one part of a request.

    Args:
        addresses: the first byte of each thread's access.
        nbytes: of each access.
    """
    words = {word for at in addresses for word in range(at // WORD, (at + nbytes - 1) // WORD + 1)}
    return max(Counter(word % BANKS for word in words).values(), default=0)


def matrix_cycles(stride: int) -> int:
    """Cycles in which `ldmatrix` reads 8 rows of 16 bytes, 128 bytes in all.

    A row covers four banks, so that rows `stride / 16` apart modulo 8 meet; 1 if none do, 8 if all do.

    Args:
        stride: bytes from a row to the next, a multiple of 16.
    """
    if stride % _MATRIX_ROW_BYTES:
        raise InternalError(f"rows {stride} bytes apart are misaligned for ldmatrix")
    return gcd(stride // _MATRIX_ROW_BYTES, _MATRIX_ROWS)


@lru_cache(maxsize=4096)
def tile_cycles(rows: int, row_bytes: int, stride: int, nbytes: int) -> int:
    """Cycles in which warps store, or load, a tile, each thread the vector behind that of the thread before.

    Args:
        rows: of the tile.
        row_bytes: that belong to the tile, of each row.
        stride: bytes from a row to the next.
        nbytes: of a vector; rows are whole vectors.
    """
    if row_bytes % nbytes:
        raise InternalError(f"a row of {row_bytes} bytes is not whole vectors of {nbytes}")
    together = min(WARP, LINE // nbytes)
    offsets = range(0, rows * row_bytes, nbytes)
    addresses = [at // row_bytes * stride + at % row_bytes for at in offsets]
    return sum(part_cycles(addresses[at : at + together], nbytes) for at in range(0, len(addresses), together))


@lru_cache(maxsize=4096)
def fragment_cycles(rows: int, columns: int, stride: int, nbytes: int) -> int:
    """Cycles in which a warp stores a tile of sums from its registers.

    A thread holds two neighbours of a row, four threads eight of them, a warp eight such rows (PTX ISA, `mma`: layout
    of the accumulator).

    Args:
        rows: of the tile, a multiple of 8.
        columns: of the tile, a multiple of 8.
        stride: bytes from a row to the next.
        nbytes: of an element.
    """
    pair = 2 * nbytes
    addresses = [thread // 4 * stride + thread % 4 * pair for thread in range(WARP)]
    together = min(WARP, LINE // pair)
    once = sum(part_cycles(addresses[at : at + together], pair) for at in range(0, WARP, together))
    return rows // 8 * (columns // 8) * once
