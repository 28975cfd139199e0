"""What is logged, and how it looks."""
