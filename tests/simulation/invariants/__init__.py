"""The promises that are checked while a simulated world runs, and when it has ended.

Nothing here changes the world.
"""
