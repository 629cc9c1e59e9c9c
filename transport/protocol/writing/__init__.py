"""The stateful writer, by stages, each a package of which only the names in its ``__init__`` are used elsewhere."""
