"""`fragbench workload`: traffic looked at before it runs, and fitted to a trace."""
