"""What large requests make grows old a little at a time.

Python's collector looks at young objects after so many of them were made, less those that were freed meanwhile (see
`serve.GC_THRESHOLDS`). A request that frees as many as it makes, or makes some while a worker frees what an earlier one
has left behind, puts that off: then one collection looks at 400,000 objects, for 50 ms. So work of many pieces asks for
a collection of the young after each few thousand things. It takes a few hundred microseconds, and no request that is
answered in one turn of the loop asks for it.
"""

from __future__ import annotations

import gc
from typing import Final

_BOTH_YOUNG_GENERATIONS: Final = 1


def let_grow_old() -> None:
    """Frees young garbage, and makes all other young objects old ones, which are hardly ever looked at."""
    gc.collect(_BOTH_YOUNG_GENERATIONS)
