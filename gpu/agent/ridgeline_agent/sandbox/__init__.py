"""The limits on a process that runs an estimate or a probe, held by the kernel: Landlock, seccomp
and dropped privileges. Patches that make refused effects seem to succeed are in `estimate.patches`.
"""
