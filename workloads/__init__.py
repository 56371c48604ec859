"""What traffic asks: requests, lengths, arrivals, mixes and trace readers."""
