"""Our Spark source and sink beside Spark's own Kafka connector. `make bench-spark` runs `python -m bench.spark`."""
