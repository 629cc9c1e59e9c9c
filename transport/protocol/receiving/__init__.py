"""What a participant does with datagrams: they are taken apart, and each part goes to the endpoints that it is for.

* ``burst_receiver``: many datagrams that are alike, at once;
* ``message_receiver``: one message, submessage by submessage;
* ``router``: whom each part is for, and whether its sender is trusted; ``message_work``: what each part costs;
* ``unread``: samples of writers that no reader of ours reads;
* ``overhearing``: messages between others, as they are read from a capture file.
"""
