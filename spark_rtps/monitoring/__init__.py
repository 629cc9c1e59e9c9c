"""Counters and reports of this host's sources and sinks, read from outside; without Spark."""
