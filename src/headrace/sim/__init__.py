"""Simulated worlds: what `env` describes, under the control of one seed."""
