"""Traffic over HTTP: Locust against an OpenAI-compatible server, measured request by request."""
