"""The schema, as numbered SQL files that are applied in order."""
