"""Figures of what people look at: pages, lists and live streams."""
