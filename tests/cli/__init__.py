"""The command line, through real processes where it matters."""
