"""Extra iterations after the profiled ones, because more of them show more. `extra_iterations`
decides which; each of the other modules is one reason.
"""
