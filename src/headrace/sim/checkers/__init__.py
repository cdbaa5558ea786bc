"""Checkers, each of one promise: most see only the requests and answers of clients, and object if these contradict it.
Three read the state of nodes, for what no client sees in time: the memory bounds, the committed records of a partition,
and the metadata quorum."""
