"""Character n-grams of texts: their hashes, and bags of their embeddings.

Each text becomes a bag of numbers from 0 to n_buckets - 1.

A text is a run of code points that begins and ends with a space and has single spaces between its words. An
n-gram lies within one word. The spaces around a word count as its first and last character: " a" is an a at
the start of a word. The hash is FNV-1a over code points with the finaliser of splitmix64, the same on every
machine. It is plain numpy, so a saved model answers without waiting for a compiler.

Add up the embeddings of each text's n-grams.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Codes = NDArray[np.uint32]
Ids = NDArray[np.int32]
Bounds = NDArray[np.int64]

SPACE = 32
_FNV_OFFSET = np.uint64(14695981039346656037)
_FNV_PRIME = np.uint64(1099511628211)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def hash_ngrams(codes: Codes, bounds: Bounds, lo: int, hi: int, n_buckets: int) -> tuple[Ids, Bounds]:
    """Return the buckets of all n-grams of lo to hi characters, text by text.

    Parameters
    ----------
    codes : (c,) array of uint32
        Code points of n texts, one after another, each with a space at both ends (or empty).
    bounds : (n + 1,) array of int64
        Where each text begins, and the end.
    lo, hi : int
        1 <= lo <= hi. A single space is not an n-gram.
    n_buckets : int
        At most 2^31.

    Returns
    -------
    ids : (m,) array of int32
    bounds : (n + 1,) array of int64
        Where the n-grams of each text begin.
    """
    c = len(codes)
    space = codes == SPACE
    ids = np.zeros((c, hi - lo + 1), dtype=np.int32)
    valid = np.zeros((c, hi - lo + 1), dtype=np.bool_)
    alive = np.ones(c, dtype=np.bool_)  # whether an n-gram may begin here and reach the current length
    ends = bounds[1:][bounds[1:] > bounds[:-1]] - 1
    alive[ends] = False  # the space at the end of a text starts no word
    h = np.full(c, _FNV_OFFSET)
    for length in range(1, min(hi, c) + 1):
        if length > 2:  # a space ends the word, so no n-gram continues past it
            alive[: c - length + 2] &= ~space[length - 2 : c]
        h = (h[: c - length + 1] ^ codes[length - 1 :]) * _FNV_PRIME
        if length >= lo:
            rows = slice(0, c - length + 1)
            ids[rows, length - lo] = _bucket(h, n_buckets)
            valid[rows, length - lo] = alive[rows] & ~space[rows] if length == 1 else alive[rows]
    counts = np.concatenate([[0], np.cumsum(valid.sum(axis=1))])
    return ids[valid], counts[bounds]


def take_texts(codes: Codes, bounds: Bounds, rows: NDArray[np.intp]) -> tuple[Codes, Bounds]:
    """Return the code points of some texts, one after another, and where each begins."""
    lengths = np.diff(bounds)[rows]
    taken = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(taken[-1]) + np.repeat(bounds[rows] - taken[:-1], lengths)
    return codes[places], taken


def drop_ngrams(ids: Ids, bounds: Bounds, keep: NDArray[np.bool_]) -> tuple[Ids, Bounds]:
    """Return the n-grams to keep, and where those of each text now begin."""
    counts = np.concatenate([[0], np.cumsum(keep)])
    return ids[keep], counts[bounds]


def _bucket(h: NDArray[np.uint64], n_buckets: int) -> Ids:
    """Mix the bits, then scale the upper half to the buckets."""
    g = (h ^ (h >> np.uint64(29))) * _MIX
    return (((g >> np.uint64(32)) * np.uint64(n_buckets)) >> np.uint64(32)).astype(np.int32)


Array = NDArray[np.float32]


def bag_inputs(E: Array, ids: Ids, bounds: Bounds) -> Array:
    r"""Return for each of B bags the sum of its rows of E (n_buckets, d), over the root of their number.

    .. math:: h_i = |g_i|^{-1/2} \sum_{k \in g_i} E_k

    With the mean instead, a long text would carry no more evidence than one word. An empty bag gives 0.
    """
    # scipy runs this loop in C; compiling one at run time would delay the first answer of a saved model
    ones = np.ones(len(ids), dtype=E.dtype)
    bags = csr_array((ones, ids, bounds), shape=(len(bounds) - 1, len(E)))
    return np.asarray(bags @ E) * bag_scales(bounds)[:, None]


def bag_scales(bounds: Bounds) -> Array:
    """Return the factor (B,) of the sum of each bag."""
    return (1 / np.sqrt(np.maximum(np.diff(bounds), 1))).astype(np.float32)
