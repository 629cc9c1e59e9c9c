"""Samples as Arrow columns and columns as samples, as the options say; knows no Spark."""
