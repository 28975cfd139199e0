"""What a type checker says about code that uses Windlass."""
