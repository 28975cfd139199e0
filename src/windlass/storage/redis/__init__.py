"""Jobs on Redis or Valkey: many machines, lowest latency.

One Lua file per atomic operation, see `scripts`; how the keys are laid out is said there, too.
"""
