"""What a broker knows of the partitions that it has a replica of. Pure: events in, watermarks and decisions out."""
