"""Where jobs live: the contract every backend keeps, and the backends."""
