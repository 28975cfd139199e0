"""The statements, as SQL."""
