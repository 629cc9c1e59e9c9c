"""The client of log servers: fetches ranges of stream logs, and asks what a receiver service records."""
