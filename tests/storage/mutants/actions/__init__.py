"""Broken stores for the tests of operators' actions."""
