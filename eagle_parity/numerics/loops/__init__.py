"""Compiled loops over rows as they are stored: what a comparison does to every number, in one pass over each block.

Why these are compiled: a block of bfloat16 rows has to be widened, and every number enters a dozen sums. Written with
whole-array operations each of them is a pass over memory; here a few rows of all states stay in a cache while all of it
happens, and a tile of a few hundred to two thousand dimensions in the first-level one. What was tried: docs/numbers.md.

States are told by address, bytes from row to row and dtype, so that one compiled loop takes any number of them, and a
slot which lies between others is read where it lies. Those that are still in files are read some rows at a time into
memory that stays in a cache. bfloat16 comes as uint16, whose bits are the upper half of a float32, or two in a uint32.

Sums within a tile are float32 (a few hundred terms at most before they are added to float64 ones). NaN and infinities
go through them as they should: of LLVM's fast-math flags only those are on that reorder and contract.

Nothing here allocates memory or raises: ``machine_code`` calls the loops in processes in which numba isn't loaded.

Shape letters: T rows, D dimensions, N states, P pairs of states by products, Q pairs by subtraction, K tables,
F sources.
"""
