"""What makes memory fragment beside KV and activations: one source a file, all switched off."""
