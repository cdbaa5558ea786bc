"""Metrics, their pages over HTTP, log levels, log lines on their way into a topic, and counts of failed requests.

**What lives here.** `metrics.py` is the one registry of counters and gauges. `loggers.py` lists and alters log levels
(KIP-412). `log_lines.py` takes log lines into a bounded queue for the topic that `self.topics` makes.
`request_errors.py` finds the error codes in an answer and counts them by API, `request_times.py` how long requests
took, `loop_lag.py` how long the loop was held. `monitor.py` is the HTTP side of a node, on `headrace.http`, and
`exposition.py` makes the page of metrics of sections (`registry_numbers.py`, `partition_numbers.py`,
`partition_series.py`, `log_sizes.py`, `group_numbers.py`, `cluster_numbers.py`), which yield `families.py`.
`broker/monitoring.py` brings the state of the other rooms to the sections, which know none of these rooms.

**What comes in and goes out.** Owners add to counters directly, one addition on a hot path; gauges are read when
somebody asks for `statistics()`, which is all that consoles and tests read.

**What may never happen.** Measuring costs more than the work measured: no formatting, no lock and no allocation a
request. The queue of lines grows beyond its bound. A page holds the event loop for more than 2 ms, however many
partitions there are.
"""
