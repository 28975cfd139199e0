"""What figures are compared with: the bare loop on each backend, and rivals.

Nothing here imports Windlass.
"""
