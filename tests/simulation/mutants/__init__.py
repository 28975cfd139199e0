"""Protocol bugs, planted one at a time: the simulation must find each of them.

Nothing in the package knows of them.
"""
