"""The transactional producer of a query, as the process that commits its batches keeps it from batch to batch."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.markers import Mark


@dataclass(slots=True)
class QueryProducer:
    """A producer, the run that made it, the mark that it committed last, and where the records of that batch are.

    `settings` is what the producer was made with: the writes of a query may differ in it. All of this is a hint: where
    it is gone, the mark is read from the cluster again.
    """

    producer: TransactionalProducer
    run_id: str
    mark: Mark
    spans: list[Span]
    settings: object
