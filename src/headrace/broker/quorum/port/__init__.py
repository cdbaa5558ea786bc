"""The controller port: requests to the controller, wherever it is.

- `controller`: the port. A part that changes metadata holds a `Controller` and gives it a request of
  `headrace.controller`. `AbsentController` is used where there is none.
- `local_controller`: the controller in this process. It turns a request and the newest image into a decision.
  `broker_liveness`: the brokers' sessions, which its decisions and the controller's tasks share.
- `cluster_controller`: the controller as a node with other voters sees it, here or elsewhere; `controller_link` is the
  connection there, `node_requests` what a node asks for itself, on the wire.
- `topics`: the port through which parts of a broker create topics of their own.
- `producer_ids`: a broker's block of producer ids, which the controller hands out.
"""
