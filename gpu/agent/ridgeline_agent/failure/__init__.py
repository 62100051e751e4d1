"""Why a run ended: exceptions, crashes, memory that ran out, and the last lines of the output.
Which process watches for the end is in `process` and `launch`.
"""
