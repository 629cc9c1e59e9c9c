"""What a log server and its clients exchange: addresses, subscriptions, ends of logs, offsets."""
