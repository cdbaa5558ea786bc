"""Requests: from an API key to an answer, a general path for all of them and a short path for the two hot ones.

**What lives here.** `apis/` has one handler a file, named as its message in `wire/messages`; each header says the
API's name, key and versions, what it does, and what it does not do. `registry.py` finds a handler, `dispatch.py` makes
the table that a listener serves, `services.py` names all that a handler may see of the broker. `produce_run.py` is the
short path of Produce: requests that arrived together are appended together, and answered from templates.
`short_fetch.py` is the short path of Fetch: a consumer that asks for more of what it reads, in a session or without
one, is answered out of the file where its last answer ended. `fetching/` is the general path: reading, and waiting.
`opening.py` has batches opened that take long, on a worker, while their connection waits. `verification.py` says what
transactional requests have to show.
`client_access.py`, `topic_creation.py`, `alter_access.py`, `authorized_operations.py` and `bad_batches.py` serve
several handlers.

**What comes in and goes out.** A decoded request and its context (who asks, in which version) come in; a response, a
completion of one (`env.completion.Completion`), a coroutine, or nothing goes out. Metadata changes go to the controller
port, appends and reads to partitions, groups to their coordinator; the image of the cluster is read as of now.

**What may never happen.**
- A handler answers before what it says is true: acks are met, metadata committed, a group's records committed.
- A short path answers otherwise than the general one: if it is not sure, it leaves the request to the handler,
  untouched.
- The common path of Produce and Fetch meets a coroutine, a task, a lock, a log line or an exception.
- A handler does what its principal may not: each asks `context.authorize` for the resource that `apis` names.
"""
