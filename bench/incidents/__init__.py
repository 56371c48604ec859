"""Failed allocations explained: which layer they come from, and the report that says so."""
