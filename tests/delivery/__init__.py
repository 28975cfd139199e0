"""What an idle worker delivers: beside every "never more than" its "and as much as"."""
