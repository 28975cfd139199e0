"""The backend's statements, by name: see `windlass.storage.queries`."""
