"""engine=vllm: an unmodified vLLM, stepped by our driver (docs/engines.md)."""
