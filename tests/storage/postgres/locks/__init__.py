"""Order of locks: sessions that act on the same rows and limits never block each other for good."""
