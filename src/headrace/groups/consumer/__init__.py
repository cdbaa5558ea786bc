"""Consumer groups (KIP-848): the coordinator assigns, and members send heartbeats only.

Reading order: `records` (the records of a group), `group` (the tables filled from them), `assignors`, `reconcile` (a
member's steps from its assignment to its target), `member_update` (the changes of one request), `heartbeat` (the life
of a member), `fencing` (members that leave or are fenced), `classic_members` (members of the classic protocol),
`conversion` (from and to a classic group), `offsets` (valid commits), `describe`, `kind`.
"""
