"""Kinds of generated traffic: one a file, any of them in one workload."""
