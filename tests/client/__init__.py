"""The producer's side, through the app."""
