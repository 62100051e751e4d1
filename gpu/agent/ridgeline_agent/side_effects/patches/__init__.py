"""Patches of the standard library that write files elsewhere, for systems where the kernel cannot
redirect writes.
"""
