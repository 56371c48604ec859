"""The harness: command line, launcher, devices, engine, costs, metrics and reports."""
