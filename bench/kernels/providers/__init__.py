"""Implementations of decode attention that are measured, one file each."""
