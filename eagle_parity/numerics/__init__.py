"""The numbers: tensors in, small mergeable states out. No I/O, no printing, no knowledge of layers.

Shape letters: T tokens, D hidden dimensions, P pairs of states that are compared, B histogram bins.
Dtype policy: rows are converted to float32 inside a block; sums over rows are float64, across blocks and merges.
"""
