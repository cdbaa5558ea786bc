"""Generates the codec of every message from the text files in schema/: `python -m tools.codegen`."""
