"""Heartbeats, dead workers, leadership, retention and what else keeps a cluster going.

Each module is one loop or one check. None of them runs a handler.
"""
