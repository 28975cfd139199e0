"""One module for each command that has no package.

A command is imported when it is used.
"""
