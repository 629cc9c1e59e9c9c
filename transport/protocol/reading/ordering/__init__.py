"""What each matched writer sent, put into order: proxies, reorder buffers, reassembly, coherent sets, delivery."""
