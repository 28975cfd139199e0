"""Real PostgreSQL and Valkey servers for tests, from wheels alone: private, never left behind."""
