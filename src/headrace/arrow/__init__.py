"""Batches as Arrow: a native decoder and encoder, and `scan` for notebooks. Needs pyarrow (the `arrow` extra)."""
