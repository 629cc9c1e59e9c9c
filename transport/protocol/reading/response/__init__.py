"""The answers of a reader to its writers: acknowledgements and requests, and when they are sent."""
