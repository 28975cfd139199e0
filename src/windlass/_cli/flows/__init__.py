"""``windlass flows``: list, show, draw, cancel and retry flows.

What it may do is decided in `windlass._admin.flows`.
"""
