"""`MaintenanceStore`: promotion, retention and compaction in bounded steps.

Every test here fails on a planted broken store.
"""
