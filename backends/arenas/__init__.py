"""Where contiguous buffers come from."""
