"""What the server and the agent's processes tell one another: messages, requests, and the small
files by which ranks and child processes report. Whoever acts on a message is elsewhere.
"""
