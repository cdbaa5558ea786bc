"""Waiting for what must come true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 60.0
LOOK_FIRST_S: Final = 0.01
LOOK_S: Final = 0.05


def until(look: Callable[[], object], what: object = "it", *unanswered: type[Exception]) -> None:
    """Returns when it is so; after a while it looks less often. `unanswered` are errors that a look may end with while
    nobody answers, as while leaders change: it is repeated then."""
    last = time.monotonic() + PATIENCE_S
    pause = LOOK_FIRST_S
    while True:
        try:
            if look():
                return
        except unanswered as error:
            what = f"{what}: {error}"[:500]
        assert time.monotonic() < last, f"{what}: not in time"
        time.sleep(pause)
        pause = min(LOOK_S, 1.2 * pause)
