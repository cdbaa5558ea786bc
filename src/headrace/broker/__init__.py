"""The broker and controller processes: connections, dispatch, handlers, and the I/O shells of the pure machines."""
