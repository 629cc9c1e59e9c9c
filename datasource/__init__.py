"""Everything that depends on Spark: options, schema, offsets, partitions, readers and writers of ``format("rtps")``."""
