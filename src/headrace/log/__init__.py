"""Partition logs on disk: segments, indexes, recovery, retention and compaction, in Kafka's own file formats.

Start with `log.py` (one partition), then `segment.py`, `recovery.py` and `manager.py` (all of a broker's logs).
Everything is synchronous and runs on an `env.Disk`; the shell decides what goes to a worker thread.
"""
