"""Plugins: how a package brings tasks, schedules and middleware into an app, within its grants.

Nothing here trusts a plugin's own word about what it may do.
"""
