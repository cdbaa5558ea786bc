"""Files that are whole at any time: what a run keeps beside Spark's checkpoint, and a table of Parquet its manifest."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Put a file with this text, which is on disk, in the place of the one that is there. Raises OSError."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)
