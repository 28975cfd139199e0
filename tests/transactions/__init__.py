"""Jobs in the user's own PostgreSQL transactions, with every driver that is accepted."""
