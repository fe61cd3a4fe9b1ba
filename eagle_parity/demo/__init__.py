"""The demonstration: the founding story at small scale, on recorded data that ships with the package."""
