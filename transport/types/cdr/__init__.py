"""CDR (XTypes 1.3 §7.4) to Arrow columns and back: a type is compiled into NumPy operations over many samples.

:class:`.codec.Codec` is the entry. :mod:`.decoding` and :mod:`.encoding` each have a compiler and the nodes that it
makes; both use :mod:`.layout` and :mod:`.member_headers`, which describe where values lie on the wire.
"""
