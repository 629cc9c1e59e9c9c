"""The commands of ``spark-rtps``; each imports what it needs when it runs, so that ``--help`` is instant."""
