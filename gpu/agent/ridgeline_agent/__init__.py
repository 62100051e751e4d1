"""The part of Ridgeline that runs in the user's Python. It needs torch and the standard library.

A package imports only from the packages before it in this list:

1. `system`: the operating system and the GPU driver's library.
2. `protocol`: messages between the server and the agent's processes.
3. `sandbox`: the limits on a process that runs an estimate.
4. `side_effects`: redirects the writes of a measured run.
5. `patches`: replaced functions of torch and Python, shared by measured runs and estimates.
6. `program`: the user's source files, modules, batches and memory.
7. `iterations`: finds where an iteration begins and ends.
8. `failure`: why a run ended, in words for the user.
9. `record`: measured runs.
10. `trajectory`: the losses and gradients of a program's first steps.
11. `estimate`: runs under fake tensors.
12. `probe`: single operators and optimizers, timed in several variants.
13. `models`: benchmark models for `ridgeline evaluate`.
14. `process`: the supervisor and the processes below it.
15. `launch`: runs with several ranks.

Every module that replaces functions of torch or the standard library for the user's program is in
a folder named `patches`, here or within another package.
"""

__version__ = "0.1.0"
