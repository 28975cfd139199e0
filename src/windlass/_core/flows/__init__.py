"""Flows: jobs that wait for jobs. Which part of a flow starts, ends or is cancelled, and when.

Pure: the stores count, and ask here what the counts mean.
"""
