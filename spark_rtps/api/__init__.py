"""The Python face: participants, subscriptions and publications for programs without Spark."""
