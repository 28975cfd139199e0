"""Limits, circuit breakers, backoff, cool-downs and the settings of queues, as values.

No usage is counted here: stores count, these rules say what the count allows.
"""
