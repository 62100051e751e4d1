"""Replaced functions of torch and `multiprocessing` that inform the recorder about loaders,
compiled regions, CUDA graphs, profilers and child processes. Each passes calls through.
"""
