"""One module for each figure: what is measured, against what, and its target.

How a figure is shown is in ``benchmarks.report``.
"""
