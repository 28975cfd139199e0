"""The producer's side: enqueue jobs, wait for results, write the event log.

It knows no worker, and it changes stored jobs only through a store.
"""
