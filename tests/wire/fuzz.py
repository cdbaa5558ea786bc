"""Mutated request frames, as many as asked for: each is decoded or refused with a DecodeError, and nothing else.

python tests/wire/fuzz.py [frames] [seed]
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[1:3]]

from wire.message_values import Choices, value

from headrace.wire.apis import APIS
from headrace.wire.frame import RequestHeader, decode_request_header, encode_request
from headrace.wire.messages import MODULES, request_class
from headrace.wire.primitives import DecodeError

TELLING = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def corpus(rng: random.Random, each: int = 3) -> list[bytes]:
    """Good frames of every API that has a codec, in every version, without their sizes."""
    frames = []
    for key in MODULES:
        api = APIS[key]
        name = request_class(key).__name__
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(each):
                body = value(name, version, Choices(rng.randbytes(60))).encode(version)
                if len(body) < 4000:
                    frames.append(encode_request(RequestHeader(key, version, 7, "fuzz"), body)[4:])
    return frames


def mutated(frame: bytes, other: bytes, rng: random.Random) -> bytes:
    """`frame` with a few of its bytes changed, cut out, put in, or exchanged for a piece of `other`."""
    out = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(out) + 1)
        kind = rng.randrange(6)
        if kind <= 2 and place < len(out):
            out[place] = rng.choice(TELLING) if kind else rng.randrange(256)
        elif kind == 3:
            del out[place : place + rng.choice((1, 2, 4, 100))]
        elif kind == 4:
            out[place:place] = rng.randbytes(rng.choice((1, 2, 4)))
        else:
            start = rng.randrange(len(other))
            out[place : place + 8] = other[start : start + 8]
    return bytes(out)


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """How many of `count` mutated frames were decoded, and how many refused; raises whatever else comes out."""
    rng = random.Random(seed)
    frames = corpus(rng)
    decoded = refused = 0
    for _ in range(count):
        frame = mutated(rng.choice(frames), rng.choice(frames), rng)
        try:
            header, at = decode_request_header(frame)
            if header.api_key not in MODULES:
                refused += 1
                continue
            request_class(header.api_key).decode(memoryview(frame), header.api_version, at)
        except DecodeError:
            refused += 1
        except BaseException:
            print(f"seed {seed}: {frame.hex()}", file=sys.stderr)
            raise
        else:
            decoded += 1
    return decoded, refused


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 1_000_000
    seed = int(arguments[1]) if len(arguments) > 1 else time.time_ns()
    started = time.monotonic()
    decoded, refused = fuzz(count, seed)
    spent = time.monotonic() - started
    print(f"seed {seed}: {decoded} decoded and {refused} refused in {spent:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
