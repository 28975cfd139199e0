"""Flows against plain jobs: shapes, large ones, many processes, cancelled and resumed ones."""
