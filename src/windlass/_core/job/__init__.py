"""Jobs: their records, states, transitions, outcomes, events, keys and ids.

Pure values and functions. Stores and workers apply what is decided here.
"""
