"""The programs of docs/python-client.md, run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cli.snippets import blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "python-client.md"
PATIENCE_S = 120


def test_the_programs_print_what_the_page_says(bootstrap: str, topic: str) -> None:
    programs = [text for language, text in blocks_of(PAGE.read_text("utf-8")) if "asyncio.run" in text]
    assert len(programs) == 2
    printed = []
    for program in programs:
        # the address and the names are the shared broker's and this test's
        program = program.replace("127.0.0.1:9092", bootstrap)
        for name in ("orders", "billing", "readers"):
            program = program.replace(f'"{name}"', f'"{topic}-{name}"')
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed == ["100 records, group Empty\n", "100 records\n"]
