"""Applies a reader's QoS to samples before they reach the log: ownership, deadlines, filters, limits."""
