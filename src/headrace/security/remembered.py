"""What was dear to make is remembered by a hash of what it was made of: passwords among that are not kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")


def remembered(most: int) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """A decorator that has a function make each thing once, as long as it is among the `most` that were made last.

    Arguments are compared by their `repr`.
    """

    def decorated(make: Callable[Given, Made]) -> Callable[Given, Made]:
        kept: dict[bytes, Made] = {}

        @wraps(make)
        def made(*given: Given.args, **named: Given.kwargs) -> Made:
            from hashlib import sha256  # it loads OpenSSL, which a client in the clear needs not

            key = sha256(repr((given, named)).encode(errors="surrogatepass")).digest()
            found = kept.get(key)
            if found is None:
                found = make(*given, **named)
                if len(kept) >= most:
                    kept.pop(next(iter(kept)), None)
                kept[key] = found
            return found

        return made

    return decorated
