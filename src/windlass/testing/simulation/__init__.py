"""Deterministic simulation: many processes, virtual time and faults, from one seed."""
