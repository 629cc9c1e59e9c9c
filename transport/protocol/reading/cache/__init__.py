"""What a reader's QoS lets through to the log: ownership, deadlines, filters, limits."""
