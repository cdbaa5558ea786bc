"""Consumer groups (KIP-848): the coordinator assigns, and a heartbeat is all that members send.

Reading order: `records` (what the log says of a group), `group` (the tables filled from it), `assignors`, `reconcile`
(how one member gets from its assignment to its target), `member_update` (what one request changes), `heartbeat` (the
whole life of a member), `fencing` (members that leave or are fenced), `classic_members` (those of the classic
protocol), `conversion` (from and to a classic group), `offsets` (whose commits count), `describe`, `kind`.
"""
