"""`fragbench soak`: a run of hours in segments, one a worker process, and a supervisor's books."""
