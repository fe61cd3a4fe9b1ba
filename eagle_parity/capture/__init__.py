"""Captures: hidden states recorded from a forward, in the tool's own format.

``format`` is the format, ``prompts`` says where token ids come from, and each further module records from one engine.
"""
