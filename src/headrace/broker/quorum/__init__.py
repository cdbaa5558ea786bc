"""The metadata of the cluster: the quorum's driver, the controller's port, and the metadata log on disk.

What lives here
- `controller`: the port. A part that changes metadata holds a `Controller` and gives it a request of
  `headrace.controller`. `AbsentController` stands where there is none.
- `local_controller`: the controller in this process. It turns a request and the newest image into a decision.
- `cluster_controller`: the controller as a node with other voters sees it, here or elsewhere; `controller_link` is the
  connection there, `node_requests` what a node asks for itself, on the wire. `cluster_node` builds all of this, starts
  it and closes it.
- `controller_tasks`: the periodic tasks of the active controller. `failure_detector`: which brokers it takes for dead.
  `broker_liveness`: the brokers' sessions, which decisions and tasks share.
- `membership`: this broker in its cluster: registration, heartbeats, controlled shutdown. `controller_registration`:
  this controller in it.
- `driver`: the shell around the pure `headrace.raft.machine.Raft`, one loop over data. It takes events, has the machine
  step, and carries out effects in order. `effects`: both as values. No part of it calls back: what takes a worker or
  the network is awaited, and its result is the next event.
- `machine_loading`: from a metadata directory to the machine, with all checks. `log_sync`: syncs, one at a time.
- `images`: the committed image, and how it moves on. `uncommitted`: the queue of images that are decided and not
  committed, each with the future that waits for it.
- `codec`, `voter_links`: the messages of voters as Kafka's requests, and the connections that carry them.
  `voter_codec`: changes of the voters in the same way. `voter_addresses`: the addresses of controller listeners.
- `answers`: what voters are told, with what is read of the log and of snapshots for it.
- `proposals`: decided records as batches. `progress`: how far voters and observers are. `voters`: whether the voters
  are the disk's.
- `snapshots`: when one is due, and how much log is kept. `snapshot_files`: the files, whole and in pieces.
  `snapshot_loading`: one of the leader's, as it comes.
- `recovery_point`: how far the metadata log was synced. `completeness`: whether it has all of that, or must not vote.
- `metadata_log`: `__cluster_metadata-0` with its snapshots and quorum-state, as bytes on a disk.
- `metadata_start`: from formatted directories to a quorum that leads; registering this broker, and fencing it.
- `producer_ids`: a broker's block of producer ids, which the controller hands out.

What comes in: requests as values, from handlers (on behalf of a client) and from the broker's own parts; the end of a
sync. What goes out: replies, once what they say is committed and applied; images, to the listeners of `on_image`, in
order and before the replies that they make possible; `on_failure`, when the disk can no longer be trusted.

The way of a change: decide on the newest image -> append -> (others decide on what it leaves) -> sync, here and on a
majority of the voters -> the machine commits -> the image is published -> the reply leaves. On a follower: fetch ->
append -> sync -> fetch again, which tells the leader -> commit as the leader says -> replay into the image. A decision
that changes nothing is answered when all that it saw is committed. When the lead is lost, all that is not committed is
reverted, and those who wait hear NOT_CONTROLLER.

The way of a leader's snapshot: a fetch is answered with its name -> pieces, each asked for when the one before is
written -> sync, read back, checked -> its name -> the machine takes it -> the log begins again behind it, the image is
replaced, and the listeners hear of the difference.

What may never happen
- An image, or a reply, that tells of records which a crash could take back.
- A record in the log that cannot be applied: it is applied to the newest image first.
- A word to another node, or a step after it, before the election that it follows from is on stable storage.
- A vote by a log that was emptied, cut or restored from an old copy, before it has again what others count on.
- A snapshot that replaces anything before it is whole, checked and on stable storage.
- A decision on an image that is not the newest, or two changes published in another order than they were decided.
- What a client asks, decided elsewhere than where its rights are known: it travels in an envelope, with its principal.
- A request of another node that goes further than to this process: two that take each other for the leader would play
  ball with it.
- Anything built on a disk whose sync failed: the quorum takes nothing more, and the broker stops.
- A listener that keeps a committed change from the others: what it raises is a defect, and is reported as one.
- Blocking work on the event loop but for the append itself and the replay of what others decided, a piece a turn:
  syncs, elections' files, snapshots, reads for followers and removals run on workers.

This room knows the log, the settings and the storage below it. It knows no request handler, no partition and no
coordinator: those know it.
"""
