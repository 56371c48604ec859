"""`fragbench replay`: a recorded memory snapshot under other settings of the allocator."""
