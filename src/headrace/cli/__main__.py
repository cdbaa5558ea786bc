"""`python -m headrace.cli`."""

from __future__ import annotations

from headrace.cli import main

main(prog_name="headrace")
