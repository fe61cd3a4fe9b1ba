"""eagle-parity: is an EAGLE-3 draft head fed, in production, the hidden states it was trained on?"""

__version__ = "0.1.0"
