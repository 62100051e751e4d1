"""The part of Ridgeline that runs in the user's Python. It needs torch and the standard library."""

__version__ = "0.1.0"
