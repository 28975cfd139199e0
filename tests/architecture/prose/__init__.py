"""Measures prose: listed words and long sentences.

It reads pages, help texts, templates and docstrings; the rules are in `test_prose.py`.
"""
