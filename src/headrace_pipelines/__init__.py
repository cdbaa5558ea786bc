"""Pipelines that people run: small programs over Structured Streaming, from one topic into another.

Each module holds one: a frozen dataclass of its settings, whose `results` turns rows of `format("headrace")` into the
keys and values to write. `running` starts and follows them; `commands` are `headrace pipeline run`. A distribution of
its own, headrace-pipelines, which `pipelines/pyproject.toml` describes.
"""
