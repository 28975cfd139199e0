"""The PostgreSQL functions, one SQL file for each subject, created in the order of their names.

Statements that Python sends are in ``sql``; tables and indexes are in ``migrations``.
"""
