"""Accounting, latency and the files of a run."""
