"""The metadata log on disk.

- `metadata_log`: `__cluster_metadata-0` with its snapshots and quorum-state, as bytes on a disk.
- `log_sync`: syncs of the log, one at a time.
- `recovery_point`: how far the log was synced. `completeness`: whether it has all of that, or must not vote.
- `snapshots`: when a snapshot is due, and how much log is kept. `snapshot_files`: the files, whole and in pieces.
  `snapshot_loading`: a snapshot of the leader's, piece by piece.
- `proposals`: decided records as batches.
"""
