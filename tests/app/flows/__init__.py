"""Tests of the app object: settings, event loops, blocking calls, tenants and limits."""
