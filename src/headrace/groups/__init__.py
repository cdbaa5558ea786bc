"""Groups as a pure machine: classic ones, consumer groups (`consumer`), committed offsets, their records.

`shard.GroupShard` is the whole machine of one partition's groups, and runs on `machine.runtime`. A request is *decided*
into an `Outcome` (records to append, answers to release); `apply` takes those records once they are in the log, live
and at a load alike. Which topic that log belongs to is of no concern here.

Reading order: `states` (the transition table), `group` (members and votes), `rebalance` (what moves a group on),
`join`, `membership` (heartbeat, leave), `sync`, `offsets`, `records` (formats), `shard`.
"""
