"""The shape of every replicated state machine here: decide returns records and a reply and changes nothing that the log
holds; apply alone writes that, live and at a reload; the reply leaves when the records are committed.

`decision` is what the controller decides, one image after the other. Coordinators answer later and wait for others:
`outcome` is what their shards decide, `runtime` takes a decision from there to its answer, `timeline` keeps the
committed state beside the latest, `timers` keeps deadlines, `batches` writes records down. Which shard a key belongs to
is for clients to know too: `wire.sharding`.
"""

from __future__ import annotations

from headrace.machine.decision import Decision

__all__ = ["Decision"]
