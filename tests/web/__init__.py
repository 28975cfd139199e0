"""The dashboard, asked as a browser asks it."""
