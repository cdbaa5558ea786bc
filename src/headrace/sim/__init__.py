"""The simulator: the broker, its clients and its controllers in worlds that one seed determines.

A world implements `env`, the interface of the broker to its surroundings, in virtual time and in one process. A seed
draws the members of a run and its faults; checkers compare what clients and nodes see with what was promised. The same
seed gives the same run. `python -m headrace.sim` runs seeds (`__main__`).

The world:
- `world` is one world with its random generators and its first objection; `trace` keeps the events of a run, `owner`
  the tasks that belong to no node.
- `loop` is the event loop in virtual time, `clock` the wall clock and the drifting monotonic clock of a machine.
- `network` delivers late and in pieces, and breaks; `encryption` adds TLS between nodes.
- `disk` loses what was not synced, and fails.
- `node` implements `env.node` for one process, `machine` starts, kills and stops it; `lock`, `steps` (interrupted
  workers) and `blocking` (threads of the synchronous client) complete it.

Workloads and clients:
- `workloads` has producers, readers, transactions, groups, operators, Spark's queries, and logs without a broker;
  `client` and `cluster_client` are the machines that they run on.

Runs:
- `run` is the run of a single broker, `cluster_run` that of a cluster (`cluster_options` draws its members). Variations
  are `clients_run`, `consumers_run`, `deleting_run`, `failing_run`, `load_run`, `quorum_run`, `sink_run` and
  `unclean_run`.
- `replica_run` and `roles_run` are steered: they bring about histories that random faults hardly ever reach.
- `kinds` lists all kinds of runs, with the planted faults that each has to find.

Faults:
- `faults` (a broker), `cluster_faults`, `replica_faults`, `directory_faults`, `unclean_faults`, `coordinator_faults`
  and `raise_faults` happen at random or at a chosen moment (`moments`).
- Steered histories: `after_snapshots`, `duels`, `emptied_voters`, `late_answers`, `late_markers`, `leaders_swapped`,
  `lost_answers`, `overlapped_syncs`, `roles_under_workers`, `shrinks_unheard`, `stale_alterations`, `winners_cut_off`.

Checkers:
- `checkers` has one module for each promise: histories of records, isolation, groups, replication, the quorum, bounds.

Planted faults:
- `sabotage` and the `*_sabotage` modules replace functions by wrong ones, to show that the simulator finds such faults;
  `found_at` has the seeds that find them, `plants` counts these.
- `mutate` tries small changes of the pure packages, and reports those that no test and no seed notices.

When a seed fails, `story` repeats it with as few of its faults as still fail.
"""
