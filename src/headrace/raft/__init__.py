"""KRaft as a pure machine: the leader of the metadata quorum, its epoch, and the high watermark.

Contents: `machine.Raft`, one node of the quorum, stepped with events and the time; its roles, one type each, in `roles`
and `leader`; the messages between nodes (`messages`) and the events and effects of the shell (`events`); the shape of a
log (`log_view`); the quorum-state file and the control records, which are Apache Kafka's to the byte.

A node that is not a voter is an observer: it follows the leader, and counts for no majority.

Inputs: requests and answers of other nodes, proposals of the leader's own shell, the end of a sync, the time. Outputs:
what to store, truncate, append, send and answer, in that order, and how far the log is committed.

Invariants: an epoch has at most one leader; a later leader has every committed entry; no vote, log end or commit is
sent before it would survive a crash. `tests/raft` checks each in random schedules.

Stricter than Kafka: a leader counts and serves its own log only as far as it is synced (Kafka: as far as it is
written); a candidate only claims synced entries; a vote is repeated only for a log that would get it again. The newest
voter set in the log applies (`voter_set`), and a leader changes it (`voter_changes`).
"""
