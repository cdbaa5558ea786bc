"""Tests of the Spark source and sink."""
