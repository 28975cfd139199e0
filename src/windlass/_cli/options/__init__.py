"""Options and arguments that several commands share, and their completion.

Nothing here prints a result.
"""
