"""Tests of the commands, one module for each."""
