"""Continuous batching over a backend: from requests to steps."""
