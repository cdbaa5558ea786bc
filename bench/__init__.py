"""Headrace beside Apache Kafka: the same load, the same machine, the same run. `make bench` runs `python -m bench`."""
