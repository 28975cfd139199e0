"""``app.blocking.admin``: the parts of ``app.admin`` for code without an event loop.

The modules are generated from `_admin`: change the classes there, and run ``make generate``.
"""
