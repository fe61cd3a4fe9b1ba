"""What a capture hook leaves on disk from inside an engine's worker: one small file a forward, and one about the rank.

This runs inside somebody's server. It imports torch, safetensors and the standard library only, does nothing until a
request of ours comes by, keeps no tensor beyond one forward, and whatever fails is written down, never raised.

Every rank of every engine sees request ids, so an id that is ours (``request_ids``) is the switch that needs neither a
restart nor a listener, and the hook records the rows of these requests alone, never those of anybody else's traffic.

The spool, one folder for all ranks of a host, made with mode 0700, its files with 0600::

    <spool>/token                                 what signatures are made with
    <spool>/<session>/<rank>.json                 what the worker says of itself: ``Session.record``
    <spool>/<session>/<rank>-000004-aux.safetensors

``files`` says what these files are called and what they hold, ``folder`` makes the spool, ``limits`` says how much may
go there, ``session`` writes a session's files, and ``worker`` is what the hooks use.
"""
