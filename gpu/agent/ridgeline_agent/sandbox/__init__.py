"""Sandboxes a process that runs an estimate or a probe, enforced by the kernel: Landlock, seccomp
and dropped privileges. Patches that make denied effects seem to succeed are in `estimate.patches`.
"""
