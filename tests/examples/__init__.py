"""The examples and the code in the documentation, run as a reader would."""
