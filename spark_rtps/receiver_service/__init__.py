"""Receiver services: subscriptions that outlive the queries which read them (``spark-rtps receive``)."""
