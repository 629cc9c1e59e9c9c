"""Samples to Arrow columns and columns to samples, according to the options; independent of Spark."""
