"""Values at the edges: payloads, instants, names, handlers, secrets and what people may see.

Each module checks or converts one kind of value. None of them knows a store.
"""
