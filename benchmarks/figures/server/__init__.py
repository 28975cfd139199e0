"""Processor time of the server, measured in its own process: what a server can serve before it is
full. Figures of what users wait for are one folder above.
"""
