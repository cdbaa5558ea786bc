"""Groups as a pure machine: classic groups, consumer groups, their committed offsets and records.

`shard.GroupShard` is the whole machine of one partition's groups, and runs on `machine.runtime`. A request is *decided*
into an `Outcome` (records to append, answers to release); `apply` takes those records once they are in the log, live
and at a load alike. Which topic that log belongs to is of no concern here.

Reading order: `shard` (the face), `kinds` (what it asks of each kind of groups), `classic`, `modern` (what the kinds
share in which the coordinator assigns), `consumer`, `unserved` (share and streams groups), `offsets`, `records`.
"""
