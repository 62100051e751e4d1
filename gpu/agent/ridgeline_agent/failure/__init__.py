"""Why a run ended: exceptions, crashes, out of memory, and the last lines of output. `process` and
`launch` watch for the end.
"""
