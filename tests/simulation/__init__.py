"""The reliable protocol over seeds, in virtual time: what loss, delay, reorder and many readers cost."""
