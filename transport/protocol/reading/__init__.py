"""The stateful reader, by stage.

``reader`` is what the participant knows; it hands each submessage on:

* ``ordering``: what is known of each writer, and its samples in order, complete, in whole coherent sets;
* ``flow``: how much each writer may send, by status messages and congestion control;
* ``response``: what each writer is answered, and when: acknowledgements and requests;
* ``arrivals``: samples as they arrive, of which the usual ones are simply the next;
* ``earlier_matches``: where to go on with writers that were matched before;
* ``history_messages``: HEARTBEATs and GAPs;
* ``untethered``: the writers that a slow reader lets go.

``cache`` stands apart: what the reader's QoS lets through of what was delivered.
"""
