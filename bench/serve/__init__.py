"""An OpenAI-compatible server over the engine: HTTP in one process, the engine in another."""
