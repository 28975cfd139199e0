"""The PostgreSQL backend: many machines, and jobs in one transaction with your own rows."""
