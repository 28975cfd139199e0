"""The app object: its parts, decorators, blocking twin and observers.

It wires the other rooms together. No rule about jobs lives here, and no room below imports it.
"""
