"""Processing of received datagrams: they are parsed, and each part goes to the endpoints that it is addressed to.

* ``burst_receiver``: many datagrams of one layout, at once;
* ``message_receiver``: one message, submessage by submessage;
* ``router``: the destinations of each part, and whether its sender is trusted; ``message_work``: the cost of each part;
* ``unread``: samples of writers that no reader of ours reads;
* ``overhearing``: messages between other participants, read from a capture file.
"""
