"""Tests of schedule rules and time zones."""
