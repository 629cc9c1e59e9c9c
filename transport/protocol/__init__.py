"""The state machines of RTPS, sans I/O: datagrams, samples and the time go in, datagrams and events come out.

* ``participant``: one participant of a domain, which holds all the others;
* ``receiving``: datagrams are taken apart, and handed to readers and writers;
* ``discovery``: participants, endpoints and types that are announced; who matches whom;
* ``reading`` and ``writing``: one stateful reader, and one stateful writer, by stage.

Sidecar the folders is what several of them use.
"""
