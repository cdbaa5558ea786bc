"""What an operator can do about a metadata log that cannot be read; start and `headrace log verify` say the same.

Two files lie in the metadata directory beside `meta.properties`: how far the log was synced, and the note that a voter
lacks some of that.
"""

from __future__ import annotations

from typing import Final

RECOVERY_POINT_FILE: Final = "metadata-recovery-point"
INCOMPLETE_FILE: Final = "metadata-incomplete"
INCOMPLETE_TEXT: Final = (
    "This node's metadata log lacks records that were synced once. It does not vote until it has fetched all that the\n"
    "leader has committed; then it removes this file.\n"
)


def metadata_remedy(directory: str, offset: int) -> str:
    """Returns the safe remedy for a log that is damaged at an offset.

    A cut alone is not: decisions that were acknowledged long ago, topics among them, would be taken back by an election
    that counts on this voter.
    """
    return (
        "restore it from a copy; or, if other controllers are alive, run "
        f"`headrace log verify {directory} --truncate-at {offset}`: it cuts the log and leaves a note, so that this "
        "node does not vote before it has fetched the rest from them. Do not empty the directory by hand"
    )


__all__ = ["INCOMPLETE_FILE", "INCOMPLETE_TEXT", "RECOVERY_POINT_FILE", "metadata_remedy"]
