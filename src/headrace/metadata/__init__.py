"""The cluster's metadata: records, the immutable image they add up to, and its snapshots."""
