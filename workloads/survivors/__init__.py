"""Which beams survive a beam search: one random process a file."""
