"""Who may come in, what they may do, how often, and at which cost.

Every request passes here first. No page decides about access by itself.
"""
