"""The benchmark of clusters: three Headrace nodes beside three of Apache Kafka, on the same cores."""
