"""Where a run happens: the virtual GPU, processes for runs, and what the allocator says."""
