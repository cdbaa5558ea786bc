"""Ends the service of a node when ACLs come into the metadata that it would not enforce: another one would.

Where they are there already, `metadata.adoption` keeps the node from starting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.metadata import adoption
from headrace.security.authorizer import ClosedAuthorizer

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.controller_node import ControllerNode
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage


class AclWatch:
    """To be told of the image from the moment on at which the node serves."""

    def __init__(self, node: Broker | ControllerNode) -> None:
        self._node = node
        self._has_ended = False

    def changed(self, _: ClusterImage, new: ClusterImage, __: ImageDelta) -> None:
        """Closes the listeners of clients and their connections at once, and has the node stop.

        What is forwarded to this node, if it is the active controller, is refused until another one is.
        """
        if self._has_ended or not (why := adoption.unenforced_acls(new)):
            return
        self._has_ended = True
        self._node.authorizer = ClosedAuthorizer()
        self._node.server.stop_serving_clients()
        self._node.fail(f"{why}: this node serves no client from now on")
