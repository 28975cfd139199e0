"""Access to time, randomness, ids, threads, green threads and forks.

Every other room asks here instead of calling the operating system, so that tests can decide.
"""
