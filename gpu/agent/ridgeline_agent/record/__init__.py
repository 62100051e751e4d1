"""Measured runs: the recorder, the line clock, the timer, the profiler's traces, and the manifest.
Estimates, which run no kernels, are in `estimate`.
"""
