"""What runs of clusters share in which leaders and followers are steered, while the controllers work undisturbed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.sim.cluster_run import CONTROLLERS, ClusterRun, host_of
from headrace.sim.replica_faults import ReplicaFaults


class SteeredRun(ClusterRun):
    """A run of a cluster whose controllers are nodes of their own."""

    def _steer(self, kinds: Sequence[str], lasts: Callable[[], bool] = lambda: False) -> None:
        """Replaces the faults of the cluster by these kinds of `ReplicaFaults`. `lasts`: see there."""
        self.cluster_faults = ReplicaFaults(
            self.world,
            self.machines,
            kinds,
            self.options.mean_s,
            controllers=[host_of(node) for node in CONTROLLERS],
            places=self._places,
            client=self._client,
            lasts=lasts,
        )
