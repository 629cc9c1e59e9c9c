"""Puts the samples of each matched writer in order: proxies, reorder buffers, reassembly, coherent sets, delivery."""
