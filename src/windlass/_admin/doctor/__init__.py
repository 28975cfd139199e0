"""Checks of a running installation, each with what to do about it.

Reads only.
"""
