"""One participant of a domain: its endpoints, what it announces, and whom it knows.

``participant`` is what the owner holds. It is made from

* ``config`` and ``endpoint_specs``: what a participant, a reader and a writer are made from; ``slices``: which part of
  a topic's writers a reader reads;
* ``discovery``: the protocols of discovery, and what they change for the endpoints of ours; ``builtin_endpoints``: the
  readers and writers that they talk through;
* ``endpoints``: the endpoints of ours, and those that match them; ``endpoint_addresses`` and ``multicast``: where they
  are reached; ``entity_keys``: what their GUIDs are made from;
* ``database``: what is known of participants and endpoints, for looking it up;
* ``packing``: what all of them send, as datagrams;
* ``events``: what happened, fetched one by one, and ``statuses``: the same, summed up as DDS does.

``spy_participant`` is a participant that nobody knows of: it reads publication logs.
"""
