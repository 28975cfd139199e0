"""Real processes on real stores, killed, stopped and starved on purpose."""
