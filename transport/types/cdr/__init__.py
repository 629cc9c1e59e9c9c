"""CDR (XTypes 1.3 §7.4) to Arrow columns and back: a type is compiled into NumPy operations over many samples.

:class:`.codec.Codec` is the way in; :mod:`.decoding` and :mod:`.encoding` each have a compiler, and nodes that it
makes; where things lie on the wire is in :mod:`.layout` and :mod:`.member_headers`, known to both.
"""
