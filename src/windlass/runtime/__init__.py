"""The moving parts of a worker; each file has one loop or one step."""
