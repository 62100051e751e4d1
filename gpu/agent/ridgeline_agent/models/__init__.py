"""Benchmark models and the lister of their operators. Only `ridgeline evaluate` uses them; no run
of a user's program does.
"""
