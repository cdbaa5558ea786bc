"""Deletes partitions: their folders are renamed at once, and removed later, or by an operator."""

from __future__ import annotations

from contextlib import ExitStack

from headrace.env.disk import is_passing
from headrace.log.checkpoints import TopicPartition
from headrace.log.filenames import delete_directory_name, stray_directory_name
from headrace.log.log import Log
from headrace.log.log_set import LogSet


def mark_stray(held: LogSet, key: TopicPartition) -> str | None:
    """Renames the folder of a partition that the metadata does not know to `-stray`; returns its new path."""
    for home in held.online():
        path = home.found.get(key)
        if path is not None:
            new = f"{home.path}/{stray_directory_name(*key, held.env.entropy.uuid())}"
            held.env.disk.rename(path, new)
            home.forget(key)
            return new
    return None


def delete(held: LogSet, key: TopicPartition) -> None:
    """Deletes a partition: its folder gets a `-delete` name now, and is removed after file.delete.delay.ms."""
    log = held.logs.pop(key, None)
    held.damaged.pop(key, None)
    future = held.future_logs.pop(key, None)
    for gone in (log, future):
        if gone is not None:
            held.flushes.forget(gone)
            gone.release()
    with ExitStack() as locks:
        for each in (log, future):
            if each is not None:
                # A worker that renames files of this log must not go on under its folder's old name.
                locks.enter_context(each.lock)
        _doom_folders(held, key, log, future)


def _doom_folders(held: LogSet, key: TopicPartition, log: Log | None, future: Log | None) -> None:
    for home in held.directories.values():
        if home.failure is not None:
            home.forget(key)  # its folder stays: the next start finds it as a stray
    for home in held.online():
        delay_ms = log.config.file_delete_delay_ms if log is not None else 0
        for each in (home.found.get(key), home.found_future.pop(key, None)):
            if each is None:
                continue
            new = f"{home.path}/{delete_directory_name(*key, held.env.entropy.uuid())}"
            gone = next((gone for gone in (log, future) if gone is not None and gone.directory == each), None)
            try:
                if gone is None:
                    held.env.disk.rename(each, new)
                else:
                    # Workers must not reach a topic created again under the same name.
                    gone.rename_folder(new)
            except FileNotFoundError:
                continue  # already removed
            except OSError as error:
                if is_passing(error):
                    return  # it stays found: a topic made under the same name sets it aside first
                held.directory_failed(home.path, error)
                break
            held.removal.add_tree(new, delay_ms)
        home.forget(key)
