"""Plugins: packages that add tasks, schedules and middleware to an app, within their grants.

Nothing here trusts what a plugin says about its own permissions.
"""
