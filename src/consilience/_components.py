"""Which classes teachers connect: the components of the graph of teachers and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

# Edges of a graph whose components are sought at once.
_MOST_EDGES = 2**20


def connected_classes(
    columns: NDArray[np.intp], offsets: NDArray[np.intp], n_classes: int
) -> NDArray[np.intp]:
    """Label each class with its connected component, numbered by first appearance.

    Parameters
    ----------
    columns : (m,) array of int
        Class of each packed column.
    offsets : (N + 1,) array of int
        Block borders.
    n_classes : int
        Number of classes, L. A class in no block is a component of its own.
    """
    everyone = np.ones((1, len(offsets) - 1), dtype=bool)
    component: NDArray[np.intp] = connected_by_pattern(columns, offsets, n_classes, everyone)[0]
    return component


def connected_by_pattern(
    columns: NDArray[np.integer[Any]],
    offsets: NDArray[np.intp],
    n_classes: int,
    patterns: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Do what `connected_classes` does for each pattern of blocks.

    Parameters
    ----------
    columns, offsets, n_classes
        As for `connected_classes`.
    patterns : (k, N) array of bool
        Which blocks to use.

    Returns
    -------
    (k, L) array of int
    """
    component = np.empty((len(patterns), n_classes), dtype=np.intp)
    # each call of scipy costs as much as thousands of edges, and each edge some memory
    at_once = 1 + _MOST_EDGES // (len(columns) + n_classes)
    for start in range(0, len(patterns), at_once):
        part = slice(start, start + at_once)
        component[part] = _connected(columns, offsets, n_classes, patterns[part])
    return component


def _connected(
    columns: NDArray[np.integer[Any]],
    offsets: NDArray[np.intp],
    n_classes: int,
    patterns: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Find the components of all patterns in one graph: first a node for each block, then for each class."""
    k, n_blocks = patterns.shape
    blocks, nodes = k * n_blocks, k * (n_blocks + n_classes)
    borders = np.zeros(nodes + 1, dtype=np.int32)
    np.cumsum(np.where(patterns, np.diff(offsets), 0), out=borders[1 : blocks + 1])
    borders[blocks + 1 :] = borders[blocks]
    first_class = np.arange(blocks, nodes, n_classes, dtype=np.int32)
    used = np.repeat(patterns, np.diff(offsets), axis=1)
    edges = (columns.astype(np.int32) + first_class[:, None])[used]
    graph = csr_array((np.ones(len(edges)), edges, borders), shape=(nodes, nodes))
    n_components, ids = connected_components(graph, directed=False)
    ids = ids[blocks:]
    # number them by their first class; a block that is not used is a component without any, and comes last
    first = np.full(n_components, len(ids))
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    rank = np.empty(n_components, dtype=np.intp)
    rank[np.argsort(first)] = np.arange(n_components)
    component: NDArray[np.intp] = rank[ids].reshape(k, n_classes)
    component -= component[:, :1].copy()
    return component
