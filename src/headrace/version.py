"""The version of Headrace."""

from __future__ import annotations

__version__ = "0.1.0"
"""The one place of the version: the package's metadata, `headrace --version`, docs/install.md and packaging/ follow."""
