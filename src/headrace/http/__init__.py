"""An HTTP/1.1 server on h11, for what a process of ours shows over HTTP: pages, and later REST, a registry, a console.

**What lives here.** `heads.py` refuses a head that two servers could read differently; `exchange.py` reads one request
and writes its response, without I/O; `connection.py` is one client, `server.py` all of them, with the limits of
`limits.py`; `routes.py` finds the handler of a request; `auth.py` is the port for logins. Streams, timers and tasks
come through `env`.

**What comes in.** Handlers: coroutines that get a `Request`, with its body read whole, and return a `Response`, whose
body is bytes or an asynchronous generator of pieces. Piece by piece they leave, no faster than the client reads.

**What may never happen.** A request has an effect before the right to it is known; a body is kept beyond its bound; a
client holds a connection, or a handler, for longer than its limits; what one connection sends decides how another one
is read.
"""
