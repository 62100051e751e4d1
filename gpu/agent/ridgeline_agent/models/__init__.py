"""Benchmark models, and the lister of their operators. Only `ridgeline evaluate` uses them; runs of
a user's program do not.
"""
