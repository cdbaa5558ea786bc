"""`headrace log`: looks into a broker's files, and repairs them. The broker must not run for a repair."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import json_option, yes_option
from headrace.cli.output import Progress, counted, print_json, size_text


@click.group(cls=CommandGroup)
def log() -> None:
    """Dump and verify the files of a broker.

    The files are Apache Kafka's; a Kafka broker's directory works as well.
    """


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--records", "-r", is_flag=True, help="Also print the records of data logs.")
@click.option("--from", "start", type=click.IntRange(min=0), default=0, metavar="OFFSET",
              help="Skip batches below this.")  # fmt: skip
@click.option("--max", "-n", "limit", type=click.IntRange(min=1), metavar="N", help="Stop after N entries of a file.")
@click.option("--as", "kind", type=click.Choice(["data", "metadata", "groups"]),
              help="Kind of records. Default: by the file's place.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines for programs.")
def dump(
    paths: tuple[Path, ...], records: bool, start: int, limit: int | None, kind: str | None, as_json: bool
) -> None:
    """Print the entries of files, or of partition folders.

    The command reads segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots (.snapshot), metadata
    snapshots (.checkpoint), the checkpoint files, leader epochs, quorum-state, meta.properties and
    partition.metadata. It decodes the records of __cluster_metadata and __consumer_offsets.
    """
    from headrace.cli.log.dumping import DumpError, entries_of, files_of

    with Progress("reading", unit="entries", output_on_stdout=True) as progress:
        for path in paths:
            files = files_of(path)
            if not files:
                raise Failure(f"{path}: no file here that this command can read", NOT_FOUND)
            for file in files:
                if not as_json and (len(files) > 1 or len(paths) > 1):
                    click.echo(f"== {file}")
                try:
                    for entry in islice(entries_of(file, records=records, start=start, kind=kind), limit):
                        _print_entry(file, entry, as_json)
                        progress.advance()
                except DumpError as error:
                    sys.stdout.flush()
                    raise Failure(f"{file}: {error}") from error


def _print_entry(file: Path, entry: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"file": str(file), **entry}, ensure_ascii=False))
        return
    lead = {"batch": "batch ", "record": "  "}.get(entry.pop("kind", ""), "")
    click.echo(lead + " ".join(f"{name}={_text(value)}" for name, value in entry.items()))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value if value and not any(c in value for c in ' ="\n\t') else json.dumps(value, ensure_ascii=False)
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


@log.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--truncate-at", type=click.IntRange(min=0), metavar="OFFSET", help="Cut a partition here: see below.")
@yes_option
@json_option
def verify(path: Path, truncate_at: int | None, yes: bool, as_json: bool) -> None:
    """Check a partition's folder, or every partition of a log directory: checksums, offsets, indexes.

    If something is damaged, the command names the file and the offset, and exits with 1. --truncate-at OFFSET removes
    everything from the batch that holds OFFSET on, in one partition of a stopped broker: those records are lost unless
    another replica has them. A node whose metadata log (__cluster_metadata-0) was cut does not vote until it has
    fetched what is missing from the other controllers: never cut those of several at once, nor that of a node that is
    the only controller.
    """
    from headrace.cli.log import verifying
    from headrace.metadata.damage import metadata_remedy

    path = path.resolve()
    partitions = verifying.partition_directories(path)
    if not partitions:
        raise Failure(f"{path}: neither a partition's folder nor a log directory", NOT_FOUND)
    if truncate_at is not None:
        _truncate(path, partitions, truncate_at, yes)
    total = sum(file.stat().st_size for each in partitions for file in each.glob("*.log"))
    found: list[verifying.Report] = []
    with Progress("checking", total, unit="bytes") as progress:
        for directory in partitions:
            found.append(verifying.verify(directory, progress.advance))
    damaged = [report for report in found if report.problems]
    if as_json:
        print_json([report.as_json() for report in found])
    else:
        for report in found:
            state = "damaged" if report.problems else "ok"
            click.echo(
                f"{report.directory.name}: {state}, {counted(report.segments, 'segment')}, "
                f"{counted(report.batches, 'batch', 'batches')}, "
                f"offsets {report.start} to {report.end}, {size_text(report.size)}"
            )
            for problem in report.problems:
                click.echo(f"  {problem}")
    if damaged:
        cut = damaged[0].cut_at
        hint = "" if cut is None else f"; --truncate-at {cut} on {damaged[0].directory} would cut it there"
        if verifying.is_metadata(damaged[0].directory):
            hint = f"; {metadata_remedy(str(damaged[0].directory), damaged[0].end if cut is None else cut)}"
        are = "partition is" if len(found) == 1 else f"partitions {'is' if len(damaged) == 1 else 'are'}"
        raise Failure(f"{len(damaged)} of {len(found)} {are} damaged{hint}")


def _truncate(path: Path, partitions: list[Path], offset: int, yes: bool) -> None:
    from headrace.cli.log import verifying
    from headrace.cli.options import confirm

    if partitions != [path]:
        raise click.UsageError("--truncate-at works on one partition's folder")
    warning = " Topics are lost unless other controllers have them." if verifying.is_metadata(path) else ""
    confirm(f"Remove everything from offset {offset} on in {path.name}?{warning}", yes)
    try:
        end = verifying.truncate(path, offset)
    except verifying.TruncateError as error:
        raise Failure(f"{path}: {error}") from error
    click.echo(f"{path.name} ends at offset {end} now", err=True)
