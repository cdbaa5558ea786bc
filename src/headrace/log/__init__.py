"""Partition logs on disk, in Kafka's formats: segments, indexes, checkpoints, recovery, retention and compaction.

What lives here
    `Log` is one partition replica. It is cut by what its parts answer for:
    - `appender.Appender`: what is staged, written and rolled; it owns the end offset. Plain batches of clients are
      checked in it, others in `careful`, those of coordinators, controllers and leaders in `trusted`; `validate` knows
      the rules, `producers` the sequences, `guards` who waits to be verified, `rolling` when a segment is full.
    - `segment_list.SegmentList`: which segments there are, and how some take the place of others.
    - `segment.Segment`: a `.log` file with its indexes (`offset_index`, `transaction_index`), and what vouches for them
      (`sealed`, `seal`; `derived` says which file is made from which); `scan` walks its batches,
      `segment_end` judges where they end, `files` bounds how many are open.
    - `log.Log` itself: reading and cutting; `lookup` finds times and aborted transactions.
    - `flushing.Flushing`: how far it is safe. `epochs.LeaderEpochs`: who wrote what.
    - `recovery.open_log`: from a folder (`folder`) to a log; `crash.Recovery` reads what the recovery point does not
      cover, `producer_history` what is known of producers, `rebuild` what a damaged small file held.
    `manager.LogManager` has all logs of a broker, in its `directory.LogDirectory`s, with their `checkpoints`. What it
    does from time to time: `schedule` says when, `housekeeping` runs `retention`, `cleaner` (which `compaction` tells
    what stays) and the expiry of producers, `removal` and `reindexing` do the rest. `moves` copies a log to another
    directory. `filenames` makes and parses every name.

What comes in, and what goes out
    In: batches as clients sent them, a leader epoch, `now_ms`; settings as a `TopicConfig`; a disk, a clock, chance and
    locks as an `Environment`. Out: `AppendResult`s with Kafka's error codes, `ReadResult`s with slices of files that a
    socket can send, work for threads. An OSError that says nothing about the disk (`env.disk.is_passing`) refuses what
    met it; a file that is missing takes its log out of use (`LogsLost`), unless the log was moved or deleted; any other
    its log directory (`LogDirFailed`): `verdicts` tells them apart. Damage of what was safe once is `LogDamaged`, and
    takes its partition alone.

What may never happen
    - A batch that was promised is lost, changed, doubled or moved: below the recovery point nothing is cut, ever.
    - A record is opened on the way of a plain batch: offset and epoch lie outside of the checksum.
    - A refused batch leaves a trace, in the file, in the indexes or in what is known of its producer.
    - A recovery point is written before the indexes up to it are safe, or an index is trusted beyond it after a crash.
    - A compacted segment comes back after its records were deleted, or an old one beside the new one.
    - The event loop waits for the disk where memory would do: it looks at what is cached, and hands on the rest.
    - What is due waits for the wall clock; only ages of records and segments go by it.
    - A folder gets another name without the log's lock, or (where the log goes on) while somebody flushes it.

The threads that touch what
    The event loop appends, rolls, takes segments out of the list, and reads without waiting. Workers flush, read cold
    data, look what has expired, rename and remove files, compact, recover, and open logs, one thread a log. A worker
    cuts, and appends what a follower has far to catch up: with the lock, and while nobody else does either.
    - `SegmentList.segments` and `bases` are replaced, never changed, under its `lock`; any thread reads them. Nobody
      syncs under that lock, and the loop does not wait for it where a worker may be renaming: it comes back later.
    - `Flushing.guard` lets one thread flush at a time; cutting and moving take it too, and syncing the indexes does.
    - Who reads looks for a file again that has another name by then; `Resources.renames` orders both.
    - Of the active segment the appender alone writes `size` and `bytes_since_index`, on its way and without a call. Its
      index entries wait in memory, and are written out by the appender or by who flushes, one of them at a time.
    - Indexes are read by any thread, made under a lock that nobody holds while waiting for the disk, and built again by
      one thread at a time, beside the files that are in use.
    - Every lock is the node's (`Environment.lock`): of one log, or of the `resources.Resources` that the segments of
      one broker share. None is of the process, so brokers beside each other in it do not wait for each other.
    - `LogManager.logs` gets new entries from workers: who walks it walks a copy.
"""
