"""Runs with several ranks: their launcher, here or on another machine, the ranks themselves, and
how the run ended. How ranks agree on iterations is in `record.alignment`.
"""
