"""Replaced functions of torch and `multiprocessing` by which the recorder learns about loaders,
compiled regions, CUDA graphs, profilers and child processes. Each passes calls through.
"""
