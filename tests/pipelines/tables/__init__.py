"""Tests of the tables beside topics."""
