"""Ranges of stream logs over HTTP: the process that serves them, and what fetches them."""
