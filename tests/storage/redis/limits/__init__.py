"""Limits on Redis: what lies behind them."""
