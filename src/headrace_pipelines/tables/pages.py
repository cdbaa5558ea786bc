"""Pages of a table sent exactly once: each is a transaction, as a batch of a stream is, with a mark of its number.

Before the transaction what the run would go on with after it, the position and the digests, is written to a file of
that number; the mark says of which number the next run begins. So a file is written for each page, as long as the
look-back is remembered, and the last two are kept.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.spark.checkpoint_offsets import DIGEST_SIZE
from headrace.spark.delivery.batch_commit import settled_mark
from headrace.spark.delivery.exactly_once import commit_batch
from headrace.spark.delivery.messages import encode_rows
from headrace.spark.delivery.spark_task import QueryBatch
from headrace.spark.options import SinkOptions
from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.moments import Moment, moment_from, stored
from headrace_pipelines.tables.watching import Sent
from headrace_pipelines.whole_files import replace_text

PAGES: Final = "pages"
"""The directory of the files, in the checkpoint's."""


class Pages:
    """The ledger of a `Watcher` that sends exactly once."""

    def __init__(self, checkpoint: Path, options: SinkOptions) -> None:
        """Takes over from an earlier run, whose open transaction is over when this returns.

        Raises `ClientError`, and `TableError` where the files and the mark do not fit.
        """
        self._directory = checkpoint / PAGES
        self._directory.mkdir(parents=True, exist_ok=True)
        self._options = options
        self._run = str(uuid.uuid4())
        self.moment: Moment | None = None
        self.sent: Sent = {}
        self._last = -1
        numbers = sorted(int(path.stem) for path in self._directory.glob("*.json"))
        if not numbers:
            self._id = str(uuid.uuid4())
            return
        self._id = self._read(numbers[-1])["id"]
        mark = settled_mark(options, self._id)
        self._last = -1 if mark is None else mark.batch_id
        if self._last >= 0 and self._last in numbers:
            content = self._read(self._last)
            self.moment = None if content["position"] is None else moment_from(content["position"])
            self.sent = {
                key: (None if at is None else moment_from(at), bytes.fromhex(d)) for key, at, d in content["sent"]
            }
        elif self._last != -1 or numbers != [0]:
            raise TableError(
                f"the checkpoint {checkpoint} knows of pages up to {numbers[-1]}, and the last one that the cluster "
                f"knows is {'none' if mark is None else self._last}: it is an older copy, or of another cluster"
            )

    def _read(self, number: int) -> Any:
        return json.loads((self._directory / f"{number}.json").read_text("utf-8"))

    def keep(self, rows: pa.RecordBatch | None, moment: Moment | None, sent: Sent) -> None:
        """Send a page. Raises `ClientError`, and `HistoryError` where another run has gone on with the checkpoint."""
        number = self._last + 1
        digests = [[key, None if at is None else stored(at), digest.hex()] for key, (at, digest) in sent.items()]
        content = {"id": self._id, "position": None if moment is None else stored(moment), "sent": digests}
        text = json.dumps(content)
        replace_text(self._directory / f"{number}.json", text)
        batch = QueryBatch(self._id, self._run, number)
        page = encode_rows(iter(() if rows is None else (rows,)), self._options, batch)
        # a page of this number that is there already must be this one, and not that of a copied checkpoint
        commit_batch(self._options, [page], number, hashlib.sha256(text.encode()).hexdigest()[:DIGEST_SIZE])
        self._last = number
        (self._directory / f"{number - 2}.json").unlink(missing_ok=True)
