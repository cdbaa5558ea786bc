"""Sockets and frames: receives bytes, hands whole requests to handlers, and sends answers in request order.

**What lives here.** `server.py` binds listeners (`listener.py`), accepts connections within the limits (`admission.py`,
`handshakes.py`) and closes idle ones. `connection.py` is one client. It is made of parts that return values: `input.py`
keeps what has arrived and is not handled yet (`large_frame.py`: a frame larger than the shared buffer), `sasl_login.py`
is the login of a client that has to log in, `request_reader.py` decodes requests and calls their handlers, `replies.py`
keeps the order of replies, `sending.py` and `output.py` send them. `shared.py` is what all connections share: the
receive buffer, the two budgets (`budget.py`: bytes of requests, bytes of responses), the spare memory of large frames
(`frame_memory.py`), quotas (`client_quotas.py`, `mutes.py`), the bounds of logins (`logins.py`), and when answers are
sent (`send_queue.py`). `blocked.py` names the reasons for which a connection is not read from.

**What comes in and goes out.** Bytes come from `env.network` streams, which call back when they can be read or
written; nothing here waits. Requests go out through the ports in `ports.py`: the table of APIs of a listener, and the
short paths of Produce and Fetch. A handler gets a `RequestContext` (`context.py`) with the `ClientSession` of its
client (`client_session.py`), and never a connection. Answers come back as values, completions or coroutines, and leave
as parts: bytes, and slices of files that leave by `sendfile` without passing through Python.

**What may never happen.**
- An answer overtakes an earlier one on its connection, or is sent twice.
- Memory is allocated for a frame's announced size: buffers grow with the bytes that arrive.
- Memory grows without bound for clients that do not read, do not finish, or request much: at a bound, reading stops.
- An exception is swallowed: it is reported with its request, and its connection ends.
- A module here depends on the meaning of a request: no import of requests, partitions, quorum or coordinators.
- Modules import each other in a cycle, even only for types: their interfaces to each other are ports.

Only the event loop's thread uses these objects; workers read cold ranges of files, and report back to the loop.
"""
