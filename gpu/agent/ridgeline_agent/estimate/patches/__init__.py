"""Replaced functions of torch and the standard library that only estimates need: a claimed GPU,
values that nobody knows, loaders, and effects that the sandbox refuses.
"""
