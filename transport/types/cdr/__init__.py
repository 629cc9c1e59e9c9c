"""CDR (XTypes 1.3 §7.4) to Arrow columns and back: a type is compiled into NumPy operations over many samples."""
