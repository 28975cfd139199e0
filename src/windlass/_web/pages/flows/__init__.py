"""Flows: the list, one flow with its picture, the jobs of one part, and actions. The picture is
made in `windlass._web.graph`.
"""
