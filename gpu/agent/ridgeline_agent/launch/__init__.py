"""Runs with several ranks: their launcher, here or on another machine, the ranks themselves, and
the outcome of the run. `record.alignment` synchronizes the ranks' iterations.
"""
