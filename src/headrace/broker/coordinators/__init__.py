"""The coordinators of this broker: the leader of a partition of an internal topic decides for the keys that hash to it.

What lives here
    `coordinator.Coordinator`, the I/O shell of the pure runtime `machine.runtime`: it appends the shards' decisions,
    loads shards from their logs, runs their timers, and sends their answers. `group_coordinator.GroupCoordinator`
    serves groups, over `__consumer_offsets`; `transaction_coordinator.TransactionCoordinator` serves transactions, over
    `__transaction_state`. Each has its own topic, kind of shard and settings, and uses the same runtime.
    `marker_sender` sends the ends of transactions to the leaders of their partitions; `local_markers` writes those of
    partitions that this broker leads. `verifier` asks transaction coordinators on behalf of partition leaders.
    `matching` runs regular expressions. `loading` reads a log on workers; `load_retries` retries failed loads. `door`
    has the ports to other packages.

What comes in
    - Requests, from the handlers of groups and of transactions: `write(key, decide, refuse)` has the shard of a key
      decide, and returns a completion of the reply, which completes when the decision is committed; `read(key)` and
      `read_all()` return shards, whose reads show committed state. Each returns an error if a key is not served here:
      NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
    - Changes of the cluster's image: the partitions that this broker leads, and their epochs; deleted topics, whose
      offsets are removed; topics and racks as consumer groups see them; the settings of groups.
    - The result of each append: committed, or unknown.
    - Time: the node's timers. If the wall clock is set, all deadlines move along.

What goes out
    - Appends, to the partitions that this broker leads, one at a time and in the order of the decisions.
    - Markers, to the leaders of a transaction's partitions, until each partition holds its own.
    - Answers, to the waiting requests. Events, to the node's log; defects, to its defect handler.

How a request goes through
    `write` -> the shard decides upon its latest state (records, a reply) -> the log takes the records -> they are
    applied -> the log is committed beyond them -> the reply leaves. With one broker the log is committed with the
    append, and all steps happen in the call. Any other change (a commit, a timer, the end of a load) is an event that
    the runtime handles in the same way, one after the other.

What may never happen
    - A reply is based on a decision that is not committed, or that was lost: reads see committed state, replies wait,
      and a failed decision is undone before any request is answered.
    - A shard appends under an epoch other than its partition's, or to a log whose end differs from the shard's: its
      decisions would have been made without knowing the whole log.
    - An append whose result is unknown when leadership ends is answered as a success.
    - A load that was begun under one epoch fills the shard of another.
    - A request waits for ever: a commit that takes longer than `offsets.commit.timeout.ms` is answered with an error.
    - The loop waits for a disk: workers read logs, in pieces.
"""
