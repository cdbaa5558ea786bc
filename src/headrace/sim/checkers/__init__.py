"""Checkers, which watch from outside: each knows one promise, sees the requests of clients and their answers, and fails
if they contradict it. Three look into the nodes, for what no client sees in time: the memory bounds, what a partition
has committed, and what the metadata quorum has.
"""
