"""The stateful reader: order, requests, and what QoS lets through."""
