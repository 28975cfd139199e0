"""Access to time, randomness, ids and threads, and to green threads where a program uses them.

Every other room asks here instead of calling the operating system, so that tests can decide.
"""
