"""`fragbench kernels`: how fast attention kernels read a KV cache on this machine's GPU."""
