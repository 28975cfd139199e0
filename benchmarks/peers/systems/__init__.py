"""One module per job system, each used as its own documentation advises.

A module holds the tasks, the `Client` of `benchmarks.peers.protocol` and the worker's command line.
Nothing here is imported by the harness: it runs in the environment of that system.
"""
