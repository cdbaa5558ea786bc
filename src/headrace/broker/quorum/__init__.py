"""The metadata of the cluster: the quorum's driver, the controller's port, and the metadata log on disk.

What lives here
- `driver`: the shell around the pure `headrace.raft.machine.Raft`, one loop over data. It takes events, has the machine
  step, and carries out effects in order. `effects`: both as values. No part of it calls back: what takes a worker or
  the network is awaited, and its result is the next event.
- `images`: the committed image, and how it moves on. `uncommitted`: the queue of images that are decided and not
  committed, each with its future.
- `codec`, `voter_links`: the messages of voters as Kafka's requests, and the connections that carry them.
  `voter_codec`: changes of the voters in the same way. `voter_addresses`: the addresses of controller listeners.
- `answers`: replies to voters, with the parts of the log and snapshots they need. `progress`: how far voters and
  observers are. `voters`: who this node is in the quorum by its settings.
- `metadata_start`: from formatted directories to a quorum that leads. `machine_loading`: from a metadata directory to
  the machine, with all checks.
- `log/`: the metadata log on disk, its snapshots and its recovery point.
- `port/`: the controller, as the rest of the node asks it, here or on another node.
- `membership/`: this node in its cluster: registration, heartbeats, and the tasks of an active controller.

The driver knows `log/` and the errors of `port/`; `port/` knows the driver, and `membership/` knows both.

What comes in: requests as values, from handlers (on behalf of a client) and from the broker's own parts; the end of a
sync. What goes out: replies, once what they say is committed and applied; images, to the listeners of `on_image`, in
order and before the replies that they make possible; `on_failure`, when the disk can no longer be trusted.

A change: decide on the newest image -> append -> (others decide on what it leaves) -> sync, here and on a
majority of the voters -> the machine commits -> the image is published -> the reply leaves. On a follower: fetch ->
append -> sync -> fetch again, which tells the leader -> commit as the leader says -> replay into the image. A decision
that changes nothing is answered when all that it saw is committed. When the lead is lost, all that is not committed is
reverted, and those who wait get NOT_CONTROLLER.

A leader's snapshot: a fetch is answered with its name -> pieces, each asked for when the one before is
written -> sync, read back, checked -> its name -> the machine takes it -> the log begins again behind it, the image is
replaced, and the listeners get the difference.

What may never happen
- An image, or a reply, with records that a crash could take back.
- A record in the log that cannot be applied: it is applied to the newest image first.
- A message to another node, or a step after it, before the election that it follows from is on stable storage.
- A vote by a log that was emptied, cut or restored from an old copy, before it has again what others count on.
- A snapshot that replaces anything before it is whole, checked and on stable storage.
- A decision on an image that is not the newest, or two changes published in another order than they were decided.
- What a client asks, decided elsewhere than where its rights are known: it travels in an envelope, with its principal.
- A request of another node that goes further than to this process: two that take each other for the leader would
  send it to and fro.
- Anything built on a disk whose sync failed: the quorum takes nothing more, and the broker stops.
- A listener that keeps a committed change from the others: what it raises is a defect, and is reported as one.
- Blocking work on the event loop but for the append itself and the replay of what others decided, a piece a turn:
  syncs, elections' files, snapshots, reads for followers and removals run on workers.

This package knows the log, the settings and the storage below it. It knows no request handler, no partition and no
coordinator: those know it.
"""
