"""The user's program as measured runs and estimates both see it: source files, modules, batches,
and what is in memory. Nothing here measures, and nothing here decides where an iteration begins.
"""
