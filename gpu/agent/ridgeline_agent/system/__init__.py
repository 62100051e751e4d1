"""Queries the operating system and the GPU driver's library: processes, private files, system
calls, mounts, NVML. Nothing here knows about torch, runs or the protocol.
"""
