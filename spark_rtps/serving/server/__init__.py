"""The server: serves ranges of stream logs, and what a receiver service records, over HTTP."""
