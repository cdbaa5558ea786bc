"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup. One of the members assigns.

Reading order: `states` (the transition table), `group` (members and votes), `rebalance` (what moves a group on),
`join`, `membership` (Heartbeat, LeaveGroup), `sync`, `offsets` (whose commits count, what expires), `describe`,
`lifecycle` (records, load and loss), `kind`.
"""
