"""Runs on fake tensors, which compute nothing and produce an operator list. Nothing here measures
time or runs on a GPU.
"""
