"""Consumer groups of the newer protocol (KIP-848): the coordinator assigns, and a heartbeat is all that members send.

Reading order: `records` (what the log says of a group), `group` (the tables filled from it), `topics` (what is known of
the cluster), `assignors`, `reconcile` (how one member gets from what it has to what it shall have), `heartbeat` (the
whole life of a member), `fencing` (members that go), `offsets` (whose commits count), `describe`.
"""
