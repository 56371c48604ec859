"""The live page: what runs do, while they do it, for a browser on this machine."""
