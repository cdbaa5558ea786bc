"""The shape of every replicated state machine here: deciding returns records and a reply, and changes none of the log's
state; only `apply` does, live and at a load; the reply is sent when the records are committed.

`decision` is the controller's, made upon one image after the other. Coordinators answer later and wait for others:
`outcome` is the decision of their shards, `runtime` takes it from there to its answer, `timeline` keeps the committed
state beside the latest, `timers` keeps deadlines, `batches` encodes records. The sharding of keys, which clients know
too, is in `wire.sharding`.
"""

from __future__ import annotations

from headrace.machine.decision import Decision

__all__ = ["Decision"]
