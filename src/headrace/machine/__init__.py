"""The shape of every replicated state machine here: decide returns records and a reply, apply alone writes."""

from __future__ import annotations

from headrace.machine.decision import Decision

__all__ = ["Decision"]
