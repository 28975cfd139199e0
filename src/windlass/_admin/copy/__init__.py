"""Copy everything from one storage to another, and prove that the copy is complete.

Both stores are reached through their protocol.
"""
