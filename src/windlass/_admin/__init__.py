"""``app.admin``: operators' reads and actions, explanations, checks and copies.

The command line, the dashboard and user code all use it. Texts for one of them stay there.
"""
