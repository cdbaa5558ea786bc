"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup. One of the members assigns.

Reading order: `states` (the transition table), `group` (members and votes), `rebalance` (the steps of a rebalance),
`join`, `membership` (Heartbeat, LeaveGroup), `sync`, `offsets` (valid commits, expiry), `describe`, `lifecycle`
(records, load and loss), `kind`.
"""
