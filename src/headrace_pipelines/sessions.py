"""What users did, in sessions: events of one user with no longer gap between them, and the pages seen most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace_pipelines.fields import fields_of, instant, moment_of, usable
from headrace_pipelines.running import Mode

PAGES_TRACKED: Final = 10_000
"""The counts of a session are exact up to three quarters of so many different pages, and estimates beyond."""
PAGES_RANKED: Final = 1_000
"""So many are ordered, by views and then by name, before the first of them are kept."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """A session is over when the watermark has passed its last event by the gap; then it is written, once.

    An event of an open session that comes late, but before the watermark, joins it, also where it makes two sessions
    one; later ones are dropped and counted. `gap` and `watermark` are durations of Spark.
    """

    mode: ClassVar[Mode] = "append"

    user_field: str = "user"
    time_field: str = "time"
    page_field: str = "page"
    time_unit: str = "ms"
    gap: str = "30 minutes"
    watermark: str = "10 minutes"
    top: int = 3

    def results(self, records: DataFrame) -> DataFrame:
        """(key, value): `user|first event`, and the session as JSON."""
        return self.keyed(self.sessions_of(self.events_of(records)))

    def events_of(self, records: DataFrame) -> DataFrame:
        """(user, moment, page) of the records that have the first two."""
        rows = fields_of(records, {"user": self.user_field, "moment": self.time_field, "page": self.page_field})
        return usable(rows.withColumn("moment", moment_of(F.col("moment"), self.time_unit)), "user", "moment")

    def sessions_of(self, events: DataFrame) -> DataFrame:
        """(user, start, end, events, top_pages); the end is the last event, and not the gap after it.

        The state of an open session holds a count a page, and never the events themselves.
        """
        pages = F.expr(f"approx_top_k(page, {PAGES_RANKED}, {PAGES_TRACKED}) filter (where page is not null)")
        sessions = (
            events.withWatermark("moment", self.watermark)
            .groupBy("user", F.session_window("moment", self.gap).alias("session"))
            .agg(
                F.min("moment").alias("start"),
                F.max("moment").alias("end"),
                F.count("*").alias("events"),
                pages.alias("pages"),
            )
        )
        # an order that does not depend on how the rows were spread: most views first, then by name
        ranked = F.array_sort(
            F.transform("pages", lambda seen: F.struct((-seen["count"]).alias("rank"), seen["item"].alias("page")))
        )
        top = F.transform(
            F.slice(ranked, 1, self.top), lambda each: F.struct(each["page"], (-each["rank"]).alias("views"))
        )
        return sessions.select("user", "start", "end", "events", top.alias("top_pages"))

    def keyed(self, sessions: DataFrame) -> DataFrame:
        """(key, value) for the sink."""
        rows = sessions.withColumns({"start": instant("start", millis=True), "end": instant("end", millis=True)})
        key = F.concat_ws("|", "user", "start")
        return rows.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
