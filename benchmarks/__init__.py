"""How fast Windlass is, and against what that is measured."""
