"""Log directories before anything is served from them: formatted, recognized, or refused.

**What lives here.** `storage_format.py` writes and reads what Kafka's storage tool writes (`meta.properties`, the
bootstrap checkpoint, directory ids) and says what a set of directories is: fresh, ours, or another cluster's.

**What comes in and goes out.** A disk, the directories that the settings name and the options of a format come in; a
layout (cluster id, node id, where metadata lie, directory ids) goes out, or a `StorageError` of one line that says
what to do.

**What may never happen.** A directory that holds another cluster's data, or data that this release cannot keep whole,
is written to. A start that is refused leaves a half-formatted directory behind.
"""
