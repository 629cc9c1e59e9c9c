"""How much a writer may send ahead of its reader: status messages and congestion control."""
