"""Real processes on real SQLite files, killed, stopped and starved on purpose."""
