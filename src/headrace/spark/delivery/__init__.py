"""How the sink's rows get into topics: at least once, exactly once by batch, or exactly once by task.

In: the rows of a task, the sink's options, and which task of which write it is. Out: a message from each task to the
driver's side, and there a commit, which returns where the records are. `port` says what a mode offers, and `registry`
chooses one. Read exactly once in this order:

1. `encoding` turns rows into record batches, `messages` are what tasks report, and `transactions` has the producers.
2. `markers` is the mark that a batch leaves in the cluster, and `decide`, which compares it with a `NextWrite`: what a
   run is about to write, by its options and its checkpoint (`next_write`).
3. `exactly_once` is the mode that commits a batch in one transaction. Its tasks encode their rows, or write them in
   transactions of their own (`group_commit`); `batch_commit` commits the rows with the mark.
4. `per_task` is the mode in which each task commits its rows with a mark of its own; `plans` keeps two runs apart.
5. `commit_records` is the copy of the mark in the `commitTopic`, which does not expire.

Never: a row is visible that the mark does not count, or a mark without its rows. Nothing here is read from Spark but in
`spark_task` and the headers of `encoding`; nothing outlives a call but in `process_state`; and no module imports the
writers in `sink`.
"""
