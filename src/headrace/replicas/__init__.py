"""The state of the partitions of which a broker holds a replica. Pure: events in, watermarks and decisions out."""
