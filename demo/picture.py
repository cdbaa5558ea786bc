"""The live table as an SVG picture, for pages that show what the demo looks like."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI

CODE_FORMAT: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own format loads fonts from the network; this one takes the reader's."""


def write(drawn: RenderableType, title: str, width: int, path: Path) -> None:
    """Writes what a terminal of `width` columns shows of `drawn`. The same table gives the same file."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(drawn)
    svg = console.export_svg(title=title, theme=MONOKAI, code_format=CODE_FORMAT, unique_id="table")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
