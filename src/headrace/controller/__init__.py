"""The controller's decisions, one module a concern: an image and a request in, records and a reply out.

A request is a value beside its decision (`context.ControllerRequest`).

Clients ask for topics, partitions, configurations, quotas, features, credentials, tokens, ACLs, elections and
reassignments, and for UnregisterBroker. The nodes of a cluster ask RegisterController, RegisterBroker, Heartbeat,
AlterPartitions, AssignDirectories and AllocateProducerIds. The active controller asks itself ElectMissing when it
begins, FenceBrokers when sessions expire, and BalanceLeaders, ElectUnclean and SweepTokens now and then. A broker that
is a cluster alone asks RegisterBroker, UnfenceBroker, ElectReturned, FenceBroker, FailDirectories and SweepTokens, and
has neither heartbeats nor sessions.
"""
