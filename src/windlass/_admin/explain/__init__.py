"""Why a job is where it is, in sentences with the facts they rest on.

Reads only.
"""
