"""The first voters of a cluster as an operator names them, in the form of Kafka's `kafka-storage format`."""

from __future__ import annotations

import re
from typing import Final

from headrace.raft.control import Voter, VoterEndpoint
from headrace.wire import uuids

_ONE: Final = re.compile(r"(\d+)@(\[[^\]]+\]|[^:\[\]]+):(\d+):([A-Za-z0-9_-]{22})")


def parse_initial_controllers(text: str, node_id: int, listener: str) -> list[Voter]:
    """The voters of `id@host:port:directory-id,...` in the order of their ids, `node_id` among them; each is reached at
    the controllers' `listener`. Raises ValueError, one line."""
    voters: list[Voter] = []
    for each in text.split(","):
        found = _ONE.fullmatch(each.strip())
        if found is None or int(found[3]) > 65535:
            raise ValueError(f"{each.strip()!r} is not id@host:port:directory-id")
        directory_id = uuids.from_text(found[4])
        endpoint = VoterEndpoint(listener, found[2].strip("[]"), int(found[3]))
        voters.append(Voter(int(found[1]), directory_id, (endpoint,)))
    if len({voter.id for voter in voters}) < len(voters):
        raise ValueError("it names a node twice")
    if len({voter.directory_id for voter in voters}) < len(voters):
        raise ValueError("it names a directory id twice")
    if all(voter.id != node_id for voter in voters):
        raise ValueError(f"it does not name this node, which is {node_id}")
    return sorted(voters)
