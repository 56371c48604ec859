"""Cells on Hydra's own launchers: Ray, Slurm and others, on this machine or on many.

The cells, checked, are written to a folder that all machines share. The launcher gets one job a
cell, of which Hydra composes no more than that folder and the cell's name; each job is a run of
bench/cells.py, and what came of all of them is read from the folder.
"""
