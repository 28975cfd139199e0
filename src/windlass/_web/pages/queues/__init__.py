"""The list of queues and the page of one queue.

Reading and acting go through ``app.admin``.
"""
