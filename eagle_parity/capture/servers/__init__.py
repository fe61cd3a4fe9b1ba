"""The running servers that a capture drives, over HTTP: one file an engine."""
