"""The pure core, one file per module: values in, values out."""
