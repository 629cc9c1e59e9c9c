"""The stateful reader, by stage.

The participant holds a ``reader``, which hands each submessage to its parts:

* ``ordering``: the state of each writer; puts its samples in order, complete, in whole coherent sets;
* ``flow``: how much each writer may send, by status messages and congestion control;
* ``response``: the acknowledgements and requests to each writer, and when they are sent;
* ``arrivals``: samples as they arrive, usually the next ones in order;
* ``earlier_matches``: where the reader resumes with writers that were matched before;
* ``history_messages``: HEARTBEATs and GAPs;
* ``untethered``: the writers that a slow reader lets go.

``cache`` is separate: it applies the reader's QoS to delivered samples.
"""
