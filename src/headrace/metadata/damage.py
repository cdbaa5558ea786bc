"""What an operator can do about a metadata log that cannot be read; start and `headrace log verify` say the same."""

METADATA_REMEDY = (
    "restore it from a copy, or, if other controllers are alive, empty it and let this node fetch it from them"
)
"""Cutting is no way out: decisions that were acknowledged long ago, topics among them, would be taken back."""

__all__ = ["METADATA_REMEDY"]
