"""Which jobs this worker takes, when, and into which slots.

Nothing here runs a handler or ends a job, but for jobs this worker cannot run.
"""
