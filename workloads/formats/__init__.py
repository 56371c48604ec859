"""Formats of recorded traces: one a file, known to `registry`."""
