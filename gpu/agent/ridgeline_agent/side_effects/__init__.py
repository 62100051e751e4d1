"""Redirects the writes of a measured run: overlays or redirected paths during the run, and the list
of discarded writes after it. The sandbox of estimates is in `sandbox`.
"""
