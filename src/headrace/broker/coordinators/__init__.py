"""The coordinators of this broker: the leader of a partition of an internal topic decides for the keys that hash to it.

What lives here
    `coordinator.Coordinator`, the shell around the pure runtime of `machine.runtime`: it appends what shards decide,
    loads them from their logs, wakes them in time, and gives out their answers. `group_coordinator.GroupCoordinator`
    is the one for groups, over `__consumer_offsets`, `transaction_coordinator.TransactionCoordinator` the one for
    transactions, over `__transaction_state`; one for share groups will be added, each with its topic, its kind
    of shard and its settings, and no runtime of its own. `marker_sender` brings the ends of transactions to the leaders
    of their partitions; `local_markers` writes those of partitions that this broker leads. `loading` reads a log back,
    on workers. `door` says what the room asks of its neighbours.

What comes in
    - Requests, from the handlers of groups and of transactions: `write(key, decide, refuse)` has the shard of a key
      decide, and returns a completion of the reply, for when the decision is committed; `read(key)` and `read_all()`
      return shards, whose reads show committed state. Each says why a key is not served here: NOT_COORDINATOR,
      COORDINATOR_LOAD_IN_PROGRESS.
    - The cluster's image, when it changes: which partitions this broker leads, under which epochs; topics that were
      deleted, whose offsets go; topics and racks as consumer groups see them; the settings of a group.
    - The end of each append: committed, or not to be known any more.
    - Time: the node's timers. A wall clock that is set moves all deadlines along.

What goes out
    - Appends, to the partitions that this broker leads, one at a time and in the order of the decisions.
    - Markers, to the brokers that lead what a transaction wrote to: until each has taken its own.
    - Answers, to the waiting requests. Events, to the node's log; defects, to its defect handler.

How a request goes through
    `write` -> the shard decides upon its latest state (records, a reply) -> the log takes the records -> they are
    applied -> the log is committed beyond them -> the reply leaves. With one broker the log is committed with the
    append, and all of it happens in the call. Everything else that happens (a commit, a timer, the end of a load) is an
    event that the runtime handles in the same way, one after the other.

What may never happen
    - A reply leaves that speaks of something that is not committed, or that was lost: reads see committed state,
      replies wait, and what fails is taken back before anybody is answered.
    - A shard appends under an epoch that is not the partition's, or to a log that does not end where the shard thinks:
      its records would come from decisions that were made without knowing all of the log.
    - An append whose end nobody knows when leadership ends is answered as if it had succeeded.
    - A load that was begun under one epoch fills the shard of another.
    - A request waits for ever: a commit that takes longer than `offsets.commit.timeout.ms` is answered with an error.
    - The loop waits for a disk: logs are read by workers, in pieces.
"""
