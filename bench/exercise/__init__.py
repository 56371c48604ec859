"""`fragbench exercise a|b|c|d|e`: the classic exercises on PyTorch's real caching allocator."""
