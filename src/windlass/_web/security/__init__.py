"""Access control: users, roles, rates and costs.

Every request passes here first. No page decides about access by itself.
"""
