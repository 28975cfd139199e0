"""Windlass beside other job systems, measured on one machine in one run: ``make bench-peers``.

Everything here is about the comparison. What Windlass promises by itself is measured in
`benchmarks.figures`.
"""
