"""Bytes as they should be, and a few of them changed."""

from __future__ import annotations

import random


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The same with a few bytes changed, left out or put in."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made) + 1)
        how = chance.randrange(5)
        if how == 0 and at < len(made):
            made[at] = chance.randrange(256)
        elif how == 1:
            del made[at : at + chance.randint(1, 8)]
        elif how == 2:
            made[at:at] = chance.randbytes(chance.randint(1, 8))
        elif how == 3:
            made[at:at] = made[at : at + chance.randint(1, 40)]
        elif at < len(made):
            made[at] ^= 1 << chance.randrange(8)
    return bytes(made)
