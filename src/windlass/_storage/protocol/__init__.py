"""The protocol of a storage: one module for each store, and the records that pass through it.

The docstrings are the contract. No implementation lives here.
"""
