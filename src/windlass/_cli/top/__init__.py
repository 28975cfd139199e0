"""``windlass top``: one live screen of what is going on.

Reads only.
"""
