"""engine=transformers: Hugging Face's caches in a simple continuous loop (docs/engines.md)."""
