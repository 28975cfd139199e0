"""The list of jobs, the page of one job, and actions on them.

Reading and acting go through ``app.admin``.
"""
