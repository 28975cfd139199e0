"""A small Django project: one installed app, one database, jobs in a file beside it."""
