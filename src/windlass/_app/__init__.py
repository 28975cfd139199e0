"""The app object, `Windlass`, and its parts.

`parts` makes them and wires the other rooms together. No rule about jobs lives here, and no room
below imports it.
"""
