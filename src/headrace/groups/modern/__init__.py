"""What the kinds of groups share in which the coordinator assigns: consumer groups (KIP-848), and the share (KIP-932)
and streams groups (KIP-1071) that follow their design.

A heartbeat is all that a member sends. The group has an epoch, which rises when its members or topics change; the
target assignment has the epoch that it was computed for; each member has the epoch that it has reached.
"""
