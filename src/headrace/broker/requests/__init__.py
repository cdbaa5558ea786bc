"""Requests: the path from an API key to an answer, a general one for all APIs and a short one for the two hot ones.

**What lives here.** `apis/` has one handler per file, named after its message in `wire/messages`; each header gives the
API's name, key and versions, what it does, and what is unsupported. `registry.py` finds a handler, `dispatch.py` builds
the table that a listener serves, `services.py` lists everything of the broker that a handler may use. `produce_run.py`
is the short path of Produce: requests that arrived together are appended together and answered from templates.
`short_fetch.py` is the short path of Fetch: a consumer that continues to read, in a session or without one, is answered
from the file position where its last answer ended. `fetching/` is the general path of Fetch: reading and waiting.
`opening.py` checks batches that take long to decompress on a worker, while their connection waits. `verification.py`
checks what transactional requests must contain.
`client_access.py`, `topic_creation.py`, `alter_access.py`, `authorized_operations.py` and `bad_batches.py` serve
several handlers.

**What comes in and goes out.** In: a decoded request and its context (the client, the version). Out: a response,
a completion of one (`env.completion.Completion`), a coroutine, or nothing. Metadata changes go to the controller port,
appends and reads to partitions, groups to their coordinator. Handlers read the cluster's image as it is now.

**What may never happen.**
- A handler answers before its answer is true: acks are met, metadata committed, a group's records committed.
- A short path gives another answer than the general one: if it is not sure, it leaves the request to the handler,
  untouched.
- The common path of Produce and Fetch creates a coroutine or a task, takes a lock, writes a log line or raises.
- A handler does what its principal may not: each asks `context.authorize` for the resource that `apis` names.
"""
