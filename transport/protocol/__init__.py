"""The state machines of RTPS, sans I/O: datagrams, samples and the time go in, datagrams and events come out.

* ``participant``: one participant of a domain, which holds all the others;
* ``receiving``: parses datagrams and hands their parts to readers and writers;
* ``discovery``: the announced participants, endpoints and types, and which of them match;
* ``reading`` and ``writing``: one stateful reader, and one stateful writer, by stage.

The modules beside these folders are used by several of them.
"""
