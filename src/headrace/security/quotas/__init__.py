"""How much a client may use: rates, buckets, and which quota is a client's. Pure: `now_ms` is an argument.

`rate` measures as Kafka does and says how long a client has to wait; for changes of topics `machine.rates` does so.
`lookup` finds the quota of a user and client id, and `buckets` has what was used of each. Source: KIP-13, KIP-124,
KIP-219, KIP-257, KIP-599, KIP-612.
"""
