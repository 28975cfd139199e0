"""``manage.py windlass_worker``."""
