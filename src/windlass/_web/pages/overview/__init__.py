"""The first page: is everything all right, and if not, where to look.

Reads only.
"""
