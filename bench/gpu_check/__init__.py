"""`fragbench gpu-check`: what only a real GPU can show, checked against what ran without one."""
