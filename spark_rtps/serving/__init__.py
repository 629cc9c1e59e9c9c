"""Stream logs over HTTP: the process that serves them (`server`), what asks it (`client`), and their `wire_format`."""
