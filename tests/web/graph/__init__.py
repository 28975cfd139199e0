"""The picture of a flow."""
