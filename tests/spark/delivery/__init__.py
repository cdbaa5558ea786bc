"""Tests of the delivery modes of the sink."""
