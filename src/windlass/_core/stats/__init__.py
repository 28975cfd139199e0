"""Counts and latency histograms, and how they add up over time.

Pure arithmetic: stores keep the numbers.
"""
