"""The stateful writer: batches, sending, repairs, and what readers acknowledge."""
