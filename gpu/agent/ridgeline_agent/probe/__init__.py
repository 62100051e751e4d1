"""Probes: single operators and optimizers, run by themselves in several variants and timed. No code
of a workspace runs here.
"""
