"""What the leader of a partition knows of its replicas. Pure: offsets in, watermarks and whom to wake out."""
