"""Reads result folders and writes the page, the figures and the table that compare them."""
