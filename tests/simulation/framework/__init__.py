"""An event loop with virtual time, processes that die, a network and stores, all from one seed.

Nothing here knows what a simulated world is for.
"""
