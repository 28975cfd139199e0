"""The package where Django looks for commands.

It holds nothing but ``commands``.
"""
