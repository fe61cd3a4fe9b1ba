"""What drives the peers, one script each, with the peers' own Python: see ``benchmarks.peers``.

Each is called with the two sides' folders and a number of files, and ends with a line of JSON on stdout: ``start``, CPU
seconds until its modules were imported, and ``said``, its verdict in a few words.
"""
