"""Windlass inside other people's frameworks: one small module each, imported by its own name."""
