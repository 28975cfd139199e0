"""``windlass bench``: what your machine and your storage give.

The project's own benchmarks are in ``benchmarks/``.
"""
