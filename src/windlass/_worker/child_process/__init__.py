"""The warm pool behind ``run_in="process"``, seen from the worker and from the child.

A child gets one job at a time and writes nothing to the store.
"""
