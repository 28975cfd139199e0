"""Tests of what all backends share."""
