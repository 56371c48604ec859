"""Models: shapes, sizes and the decoder whose forward pass is recorded."""
