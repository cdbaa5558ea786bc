"""Tables beside topics: a topic kept equal to one of PostgreSQL, SQLite or Parquet files, and a table sent to a topic.

`layout` says which columns a table has, `changes` what a batch of records does to them, `following` what a table knows
of its topic; `postgres`, `sqlite` and `parquet` are the tables, `syncing` the query that feeds them. The other way is
`watching`.
"""

from headrace_pipelines.tables.parquet import read_table

__all__ = ["read_table"]
