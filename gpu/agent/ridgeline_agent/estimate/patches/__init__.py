"""Patches of torch and the standard library that only estimates need: a claimed GPU, unknown
values, loaders, and effects that the sandbox denies.
"""
