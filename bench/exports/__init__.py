"""Results in the formats that others read: `fragbench export`."""
