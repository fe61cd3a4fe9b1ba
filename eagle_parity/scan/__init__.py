"""A whole training set, looked at file by file: what is broken in it, and what its states are like.

``shards`` lists the files, ``look`` reads one, ``set_state`` adds up what was found, ``executors`` spread the work,
``run`` holds it together and ``summary`` writes it down; ``measurements`` is what the checks and the report see.

The files are read in parts whose borders depend on the list alone, and the parts are added in their order: the outcome
is the same bit for bit, however many processes or machines there were and however often they were interrupted.
"""
