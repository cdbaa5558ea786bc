"""The common part of the group kinds in which the coordinator assigns: consumer groups (KIP-848), and the share
(KIP-932) and streams groups (KIP-1071) of the same design.

Members send heartbeats only. The group has an epoch, which rises when its members or topics change; the target
assignment has the group epoch that it was computed for; each member has the epoch that it has reached.
"""
