"""Measured runs: the recorder, line clock, timer, profiler traces and manifest. Estimates, which
run no kernels, are in `estimate`.
"""
