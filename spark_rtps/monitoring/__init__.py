"""What the sources and sinks of this host count and report, read from outside; knows no Spark."""
