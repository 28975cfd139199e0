"""Settings from arguments, environment and TOML, and the text forms of durations, rates and
backoffs.

Values only. Nothing here opens a store or knows an app.
"""
