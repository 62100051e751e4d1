"""The processes of one run: the supervisor, the worker, the zygote and the program's own process.
What is measured there is in `record`; runs with several ranks are in `launch`.
"""
