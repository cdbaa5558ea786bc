"""Sockets and frames: bytes come in, whole requests go on, answers leave in the order of their requests.

**What lives here.** `server.py` binds listeners, accepts connections within the limits, and owns what all connections
share: the buffer that everything is received into, the two budgets (bytes of requests, bytes of answers), spare
buffers for large frames, the sweep of idle connections. `connection.py` is one client: it cuts frames out of what
arrived, hands them on, keeps the order of answers, and stops reading where a bound is reached (`blocked.py` names the
reasons). `large_frame.py` holds a frame that is larger than the shared buffer, `output.py` what is still to be sent,
`sending.py` sends it when the other side takes more, `reply.py` what is kept of a request between its effect and its
answer, `budget.py` a named bound on bytes. `sasl_connection.py`
is a connection whose client has to log in first, `logins.py` what strangers may hold and how long they may take.
`context.py` and `answers.py` are what a handler is given and what it may return.

**What comes in and goes out.** Bytes come from `env.network` streams, which call back when they can be read or
written; nothing here waits. Requests go out to the room behind through the shapes in `ports.py`: the table of APIs of
a listener, the short way of Produce and the short way of Fetch. Answers come back as parts: bytes, and slices of files
that leave by `sendfile` without passing through Python.

**What may never happen.**
- An answer overtakes the one before it on its connection, or is given twice.
- A frame's announced size has memory allocated: buffers grow with what arrives.
- Memory grows with clients that do not read, do not finish, or ask for much: each is a bound and stops reading.
- An exception is swallowed: it is reported with its request, and its connection ends.
- Anything here knows what a request means: no import of requests, partitions, quorum or coordinators.

One thread, the event loop's, touches all of it; a worker reads cold ranges of files, and reports back to the loop.
"""
