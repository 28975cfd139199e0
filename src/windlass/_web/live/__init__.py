"""The stream that tells open pages which parts have changed.

It sends names of parts, never their content.
"""
