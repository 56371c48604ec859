"""How long prompts and outputs are: one distribution a file."""
