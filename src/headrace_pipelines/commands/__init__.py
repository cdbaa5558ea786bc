"""The commands that this distribution adds to `headrace`, which finds them by the entry points `headrace.commands`."""
