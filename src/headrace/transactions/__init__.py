"""The transaction coordinator as a pure machine: one shard for each partition of `__transaction_state`.

`shard.TransactionShard` decides; `machine.runtime` writes its decisions down; the broker's shell sends the markers that
it asks for. Sources: KIP-98, KIP-360, KIP-890, KIP-664.
"""
