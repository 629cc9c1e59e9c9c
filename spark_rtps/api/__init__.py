"""The Python API: participants, subscriptions and publications for programs without Spark."""
