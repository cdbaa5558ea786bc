"""This node in its cluster.

- `cluster_node`: builds everything that a node has beside its quorum driver, starts it and closes it.
- `broker_membership`: this broker's registration, heartbeats and controlled shutdown. `controller_registration`: this
  controller's.
- `controller_tasks`: the periodic tasks of the active controller. `failure_detector`: which brokers it takes for dead.
- `token_sweep`: the removal of expired delegation tokens.
"""
