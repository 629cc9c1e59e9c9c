"""Arrow columns to serialized samples."""
