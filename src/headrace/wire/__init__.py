"""Bytes and values: the Kafka protocol and its records, and nothing that does I/O."""
