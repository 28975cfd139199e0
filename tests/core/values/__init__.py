"""Tests of payloads, instants and redaction."""
