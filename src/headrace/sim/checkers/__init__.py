"""Those who watch from outside: each knows one promise, hears what clients sent and were told, and objects where the
two do not go together. Three look into the nodes, for what no client sees in time: the memory bounds, what a partition
has committed, and what the metadata quorum has."""
