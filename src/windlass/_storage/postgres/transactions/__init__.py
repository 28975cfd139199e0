"""Jobs inside the user's own transactions, on the user's own connection.

Only PostgreSQL has it; the promises are in `windlass._storage.protocol.transactions`.
"""
