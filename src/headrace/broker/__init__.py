"""The I/O shell of one broker: connections, dispatch, handlers, and the drivers around the pure machines."""
