"""Groups as a pure machine: classic groups, consumer groups, their committed offsets and records.

`shard.GroupShard` is the machine of one partition's groups, and runs on `machine.runtime`. A request is decided into an
`Outcome` (records to append, answers to release); `apply` applies those records once they are in the log, live and at a
load alike. The machine does not know the topic of its log.

Reading order: `shard` (the entry point), `kinds` (the interface of each kind of groups), `classic`, `modern` (shared by
the kinds whose coordinator assigns), `consumer`, `unserved` (share and streams groups), `offsets`, `records`.
"""
