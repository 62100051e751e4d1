"""The user's program, as measured runs and estimates see it: source files, modules, batches and
memory. Nothing here measures or decides where an iteration begins.
"""
