"""Attention over paged KV caches: Triton kernels, and the same functions in plain torch."""
