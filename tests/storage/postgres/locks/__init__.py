"""Which rows an operation holds while it waits for others."""
