"""Runs under fake tensors, which compute nothing and leave an operator list. Nothing here measures
time, and nothing here runs on a GPU.
"""
