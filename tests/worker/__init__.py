"""Tests of the worker, room by room; ``fixtures`` makes workers and steps them."""
