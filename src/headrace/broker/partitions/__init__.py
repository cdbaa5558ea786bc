"""The replicas that this broker holds: opened, led, followed and taken offline as the metadata say.

What lives here
    `replica`            one partition replica: its log, its part (leader, follower, offline) and who waits for it
    `replica_table`      all of them, as requests find them
    `replica_manager`    follows the cluster's image: which replicas this broker has, which it leads, whom it follows
    `opening`            opens logs, on workers, and recovers them after a crash
    `epoch_starts`       writes down where leader epochs begin, before anything is appended under them
    `appending`          takes appends, and acknowledges them when their three conditions hold
    `refused_batches`    what idempotent producers are to send again before what they sent behind it
    `failing`            disks that fail, and defects: what goes offline with them
    `fetchers`           which partition is fetched over which connection, where other brokers lead
    `fetch_loop`         one connection to a leader: asks, and does what its answers say
    `lost_leaders`       leaders of which the metadata are likely to say something else soon
    `following`          what a follower does to its log: appends, cuts, syncs
    `isr_changes`        asks the controller for changes of in-sync sets
    `flusher`            syncs logs, for acknowledgements that wait for the disk and for what lies unwritten too long
    `background`         periodic work: retention, checkpoints, compaction
    `replica_moves`      moves of replicas between log directories
    `directory_assignment`  reports to the metadata in which directory each replica is

Decisions are made elsewhere: `headrace.replicas` decides who is in sync and what is committed, and `headrace.log` knows
what a log holds. This room is the shell around the two: it owns the waiting, the workers and the timers.

What comes in
    Images of the cluster, one after the other, from the quorum. Appends, and reads that wait, from the rooms of the
    requests and of the coordinators. Errors of disks, from any part that met one.

What goes out
    Answers to those who wait: an append is acknowledged, or why not; something can be read. What the metadata should
    say: where a replica lies, which directories work. That the broker cannot go on, when no log directory is left.

The life of a replica: the image names it; a worker opens its log; it becomes leader or follower, with the high
watermark of its checkpoint. A leader has the start of its epoch written down and synced; from then on it takes appends,
and serves its followers. A follower cuts its log where it parts from its leader's, and appends what it fetches. It ends
as offline: its disk failed, a defect made it untrustworthy, its topic is gone, others have it now, or the broker stops.

What may never happen
    - An append is acknowledged before what its producer asked for holds: written here (acks=1), on every in-sync
      replica of which there are enough (acks=all), and synced, where acknowledgements wait for the disk.
    - A batch of an idempotent producer is taken before one that it sent earlier, and that was refused here just now.
    - A high watermark falls while this broker leads.
    - Something is appended under an epoch whose start is not on disk.
    - A follower appends what it was sent under another leader epoch than the one that it follows now, or by a leader of
      a newer one; or reports an offset that is not synced, where acknowledgements wait for the disk.
    - The event loop waits for a disk to open a log that somebody asked for, to sync or to look something up.
    - An unexpected error goes unsaid: it is reported as a defect, and its partition is offline from then on.
    - An empty log is made in the place of one that lies in a directory which failed.
    - One partition's trouble holds up another's.

The room imports from `telemetry`, `storage`, `quorum` and `settings` alone, beside the layers below the broker's. `net`
is beside it: neither knows the other. A part is given what it uses (the node, the logs, a function that returns the
newest image), never the broker.
"""
