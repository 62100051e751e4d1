"""Finds where an iteration of the training loop begins and ends, and whether iterations have a
period. `record` and `estimate` handle what happens within an iteration.
"""
