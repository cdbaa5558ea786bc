"""Locks the log directories, and reads their names and checkpoints. Opens no log."""

from __future__ import annotations

from headrace.log.checkpoints import TopicPartition
from headrace.log.directory import LogDirectory, LogDirLocked
from headrace.log.filenames import delete_directory_name
from headrace.log.log_set import LogSet


def lock(held: LogSet) -> None:
    """Locks all directories. Raises LogDirLocked, and then holds none; marks a directory whose disk fails."""
    for directory in held.directories.values():
        try:
            held.env.disk.make_dirs(directory.path)
            directory.lock()
        except LogDirLocked:
            unlock(held)
            raise
        except OSError as error:
            directory.fail(error)


def unlock(held: LogSet) -> None:
    """Releases the directories to other brokers."""
    for directory in held.directories.values():
        directory.unlock()


def load(held: LogSet) -> bool:
    """Reads checkpoints and names of all directories; returns whether every one was stopped cleanly.

    Raises OSError if none of them works, and CheckpointError for a checkpoint that cannot be read: an operator may
    delete it, and pays with a scan.
    """
    for directory in held.online():
        try:
            directory.load()
        except OSError as error:
            directory.fail(error)
            continue
        for path in directory.doomed:
            held.removal.add_tree(path, 0)
    if not held.online():
        raise held.first_failure()
    _settle_duplicates(held)
    return all(directory.clean for directory in held.online())


def _settle_duplicates(held: LogSet) -> None:
    """Keeps the longer log of a partition that a crash at the end of a move left in two directories."""
    disk = held.env.disk
    homes: dict[TopicPartition, list[LogDirectory]] = {}
    for home in held.online():
        for key in home.found:
            homes.setdefault(key, []).append(home)
    for key, owners in homes.items():
        if len(owners) > 1:
            sizes = [sum(size for _, size in disk.list_sizes(home.found[key])) for home in owners]
            kept = owners[sizes.index(max(sizes))]
            for home in owners:
                if home is not kept:
                    new = f"{home.path}/{delete_directory_name(*key, held.env.entropy.uuid())}"
                    disk.rename(home.found[key], new)
                    held.removal.add_tree(new, 0)
                    home.forget(key)
