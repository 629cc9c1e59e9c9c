"""Asks log servers over HTTP: ranges of stream logs, and what a receiver service records."""
