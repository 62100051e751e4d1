"""What the agent asks of the operating system and of the GPU driver's library: processes, private
files, system calls, mounts, NVML. Nothing here knows torch, a run or the protocol.
"""
