"""Where the writes of a measured run go: overlays or redirected paths during the run, and the list
of discarded writes after it. The sandbox of estimates is in `sandbox`.
"""
