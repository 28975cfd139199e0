"""Flows as operators see them: listed, read, cancelled, retried and counted again.

Every change leaves an audit record. What a flow is, is decided in `windlass._core.flows`.
"""
