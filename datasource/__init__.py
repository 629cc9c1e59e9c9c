"""All that knows Spark: options, schema, offsets, partitions, readers and writers of ``format("rtps")``."""
