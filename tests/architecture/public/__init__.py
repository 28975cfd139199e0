"""Checks of what users can import, and of names they depend on.

Rules about the code inside are one folder up.
"""
