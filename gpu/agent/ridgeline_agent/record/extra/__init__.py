"""Iterations that run after the profiled ones, because more of them show more. `extra_iterations`
decides which, and each other module is one reason.
"""
