"""Measurements that ``make bench`` prints; nothing here fails a build by its numbers."""
