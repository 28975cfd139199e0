"""`FlowStore`: jobs that wait for jobs, started whole, counted in one write, never left waiting.

Every test here fails on a planted broken store.
"""
