"""Chooses the delivery mode of a sink."""

from __future__ import annotations

from headrace.spark.delivery.port import DeliveryMode
from headrace.spark.delivery_options import PER_TASK
from headrace.spark.options import SinkOptions


def delivery_mode(options: SinkOptions) -> DeliveryMode:
    """Returns the mode that the option `delivery` names. A mode is imported when it is used, as workers start often."""
    if options.exactly_once is None:
        from headrace.spark.delivery.at_least_once import AtLeastOnce

        return AtLeastOnce()
    if options.exactly_once.mode == PER_TASK:
        from headrace.spark.delivery.per_task import PerTask

        return PerTask()
    from headrace.spark.delivery.exactly_once import WholeBatch

    return WholeBatch()
