"""An installed app with nothing but tasks."""
