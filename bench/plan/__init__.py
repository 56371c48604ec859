"""`fragbench plan`: deployment questions answered with numbers before a run."""
