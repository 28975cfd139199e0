"""Everything of Windlass that users depend on from outside Python, part by part.

``python -m tests.architecture.interface`` writes the list anew.
"""
