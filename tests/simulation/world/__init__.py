"""One simulated world: its processes, users, workload and faults, from one seed.

What must hold in it is in ``tests.simulation.invariants``.
"""
