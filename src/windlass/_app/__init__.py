"""The app object and its parts: what users write, and what does it.

`parts` makes them and wires the other rooms together. No rule about jobs lives here, and no room
below imports it.
"""
