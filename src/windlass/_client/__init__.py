"""The producer's side: open a storage for each event loop, enqueue jobs, wait for results.

It knows no worker, and it changes stored jobs only through a store.
"""
