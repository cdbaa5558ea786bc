"""Fetch requests that take the general path: what `apis/k01_fetch.py` reads, and how it waits for more.

`Reading` reads the partitions of a request once, by a `ConsumerReader` or a `FollowerReader`. `Fetch` reads, and waits
with a `Watch` on the replicas if too little is there; `LargeFetch` does the same in pieces, for requests with many
partitions. Data that is not in memory is loaded between two readings (`Reading.load_cold`).
"""
