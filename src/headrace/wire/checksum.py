"""CRC-32C, from the extension module of the crc32c package alone.

The package itself reads its own distribution's metadata and builds a command line when it is imported, which costs a
broker a tenth of its start-up.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final

from headrace.wire.primitives import Buffer


def _load() -> Callable[[Buffer], int]:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as whole

        return whole
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[Buffer], int] = module.crc32c
    return function


crc32c: Final = _load()
"""The checksum of a buffer."""
