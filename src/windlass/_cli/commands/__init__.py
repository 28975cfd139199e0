"""One module for each command that has no room of its own.

A command is imported when it is used.
"""
