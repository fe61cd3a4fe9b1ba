"""Live states against trained ones, token by token.

The data flows one way: ``pairing`` finds the sequences that belong together, ``measure`` streams their states once into
plain numbers (``measurements``), ``judge`` turns those into findings without any tensor, so that ``report`` can judge a
saved result again. ``diff`` is the whole.
"""
