"""One participant of a domain: its endpoints, its announcements, and the participants that it knows.

The owner holds a ``participant``. Its parts are

* ``config`` and ``endpoint_specs``: the parameters of a participant, a reader and a writer; ``slices``: which part of a
  topic's writers a reader reads;
* ``discovery``: the discovery protocols, and their effects on our endpoints; ``builtin_endpoints``: the readers and
  writers of these protocols;
* ``endpoints``: our endpoints, and the endpoints matched with them; ``endpoint_addresses`` and ``multicast``: the
  addresses of endpoints; ``entity_keys``: the entity ids of our endpoints;
* ``database``: look-ups of participants and endpoints;
* ``packing``: messages of all endpoints, packed into datagrams;
* ``events``: changes, fetched one by one, and ``statuses``: the same as counters, as DDS defines them.

``spy_participant`` is a participant unknown to all others: it reads publication logs.
"""
