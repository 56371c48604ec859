"""How KV memory is laid out: one small file a strategy."""
