"""Settings from arguments, environment and TOML, and how durations, rates and backoffs are written.

Values only. Nothing here opens a store or knows an app.
"""
