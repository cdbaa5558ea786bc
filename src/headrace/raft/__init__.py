"""KRaft as a pure machine: the leader of the metadata quorum, its epoch, and the high watermark.

What lives here: `machine.Raft`, one node of the quorum, stepped with events and the time; its roles, one type each,
in `roles` and `leader`; what nodes say to each other (`messages`) and what a shell says and does (`events`); the shape
of a log (`log_view`); the quorum-state file and the control records, which are Apache Kafka's to the byte.

A node that is not a voter is an observer: it follows the leader, and counts for no majority.

What comes in: requests and answers of other nodes, proposals of the leader's own shell, the end of a sync, the time.
What goes out: what to store, truncate, append, send and answer, in that order, and how far the log is committed.

What may never happen: two leaders in an epoch; a committed entry that a later leader lacks; a vote, an end of a log or
a commit that is sent before it would survive a crash. `tests/raft` looks for each in random schedules.

Stricter than Kafka: a leader counts and serves its own log only as far as it is synced (Kafka: as far as it is
written); a candidate only claims synced entries; a vote is given again only to a log that would get it again.
Who votes is what the newest set in the log says (`voter_set`), and a leader changes it (`voter_changes`).
"""
