"""The processes of a run: the supervisor, the worker, the zygote and the program's own process.
`record` measures; runs with several ranks are in `launch`.
"""
