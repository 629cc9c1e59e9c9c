"""What a reader answers its writers, and when: acknowledgements and requests."""
