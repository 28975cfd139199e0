"""The list of schedules, the page of one, and the form that changes it.

Reading and acting go through ``app.admin``.
"""
