"""Partition logs on disk, in Kafka's formats: segments, indexes, checkpoints, recovery, retention and compaction.

Contents
    `log.Log` is the log of one partition replica. It holds:
    - `state.LogState`, its state: `bounds.LogBounds` are its log start, local log start and end,
      `segment_list.SegmentList` its segments and how some replace others, `epochs.LeaderEpochs` its leader epochs,
      `producers.Producers` its producers, with the `guards` of transactions that are being verified (KIP-890).
    - `writer.LogWriter`: staging, writing and rolling. It checks plain batches of clients itself; `client_batches` has
      the others, whose rules `validate` knows, and `internal_batches` those of coordinators, controllers and leaders.
      `rolling` says when a segment is full.
    - `reader.LogReader`: reads by offset; `lookup` finds timestamps and aborted transactions. A read answers `Local` or
      `OutOfRange` (`read_results`). `cursor.Cursor` is a consumer's place in a log.
    - `flushing.Flushing`: how far the log is safe.
    `log.Log` itself cuts the log: truncation, retention, deletion of records.
    - `segment.Segment`: a `.log` file with its indexes (`offset_index`, `transaction_index`), and what vouches for them
      (`sealed`, `seal`; `derived` says which file is made from which); `scan` walks its batches, `segment_end` judges
      where they end, `files` bounds how many are open.
    - `recovery.open_log`: from a folder (`folder`) to a log; `crash.Recovery` reads what the recovery point does not
      cover, `producer_history` the state of producers, `rebuild` what a damaged small file held.
    `manager.LogManager` is the face of all logs of a broker. `log_set.LogSet` holds them and their
    `directory.LogDirectory`s; `loading` reads the directories, `opening` opens or makes logs, `deletion` takes them
    away, `offset_checkpoints` writes `checkpoints`. `schedule` says when background work is due, `housekeeping` runs
    `retention`, `cleaner` (`compaction` tells what stays) and the expiry of producers, `removal` and `reindexing` do
    the rest. `moves` copies a log to another directory. `filenames` makes and parses every name.

Inputs and outputs
    In: batches as clients sent them, a leader epoch, `now_ms`; settings as a `TopicConfig`; a disk, a clock, chance and
    locks as an `Environment`. Out: `AppendResult`s with Kafka's error codes, `ReadResult`s with slices of files that a
    socket can send, work for threads. An OSError that says nothing about the disk (`env.disk.is_passing`) refuses what
    met it; a file that is missing takes its log out of use (`LogsLost`), unless the log was moved or deleted; any other
    its log directory (`LogDirFailed`): `verdicts` tells them apart. Damage of what was safe once is `LogDamaged`, and
    takes its partition alone.

Invariants
    - No acknowledged batch is lost, changed, doubled or moved: below the recovery point nothing is cut, ever.
    - No record of a plain batch is opened: offset and epoch lie outside of the checksum.
    - A refused batch leaves no trace in the file, in the indexes or in the state of its producer.
    - A recovery point is written after the indexes up to it are safe, and no index is trusted beyond it after a crash.
    - A compacted segment never comes back after its records were deleted, nor an old one beside the new one.
    - The event loop does not wait for the disk: it reads what is cached, and hands on the rest.
    - Timers go by the steady clock; only ages of records and segments go by the wall clock.
    - A folder is renamed under the log's lock, and (if the log goes on) while nobody flushes it.
    - An object's private fields are assigned by that object alone. `LogState` alone changes the bounds.

Threads
    The event loop appends, rolls, takes segments out of the list, and reads without waiting. Workers flush, read cold
    data, look for expired segments, rename and remove files, compact, recover, and open logs, one thread a log. A
    worker cuts, and appends for a follower that is far behind: with the lock, and while nobody else does either.
    - `SegmentList.segments` and `bases` are replaced, never changed, under its `lock`; any thread reads them. Nobody
      syncs under that lock, and the loop does not wait for it while a worker may be renaming: it comes back later.
    - `Flushing.guard` lets one thread flush at a time; cutting and moving take it too, and syncing the indexes does.
    - A reader looks for a file again that has another name by then; `Resources.renames` orders both.
    - The thread that appends is the only one that changes the `size` of the active segment. Index entries wait in
      memory, and are written out by that thread or by a flush, one of them at a time.
    - Indexes are read by any thread, made under a lock that nobody holds while waiting for the disk, and rebuilt by one
      thread at a time, beside the files that are in use.
    - Every lock is the node's (`Environment.lock`): of one log, or of the `resources.Resources` that the segments of
      one broker share. None is of the process, so brokers beside each other in it do not wait for each other.
    - `LogSet.logs` gets new entries from workers: iterate over a copy.
"""
