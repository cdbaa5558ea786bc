"""The workloads of simulated worlds: the clients, operators and logs of runs, each with what must hold whatever
fails."""
