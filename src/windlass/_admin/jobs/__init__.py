"""Jobs as operators see them: found, read without secrets, and changed one by one or in bulk.

Every change leaves an audit record.
"""
