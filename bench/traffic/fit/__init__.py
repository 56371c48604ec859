"""`fragbench workload fit=FILE`: generated traffic that is like a trace's."""
