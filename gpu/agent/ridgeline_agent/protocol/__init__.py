"""The communication between the server and the agent's processes: messages, requests, and the small
files through which ranks and child processes report. The code that acts on messages is elsewhere.
"""
