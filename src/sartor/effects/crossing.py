"""The equations of two groupings of the same rows, and their restricted likelihood.

One grouping has a block for each client, as in ``linear.py``. The other one stands in the border,
beside β. A client meets few of its levels, so what a client says of the border is sparse; the
border itself is dense.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from sartor.effects.factors import inverse_of
from sartor.effects.linear import RIDGE, Moments
from sartor.errors import DataError
from sartor.types import Floats, Ints

DENSE = 0.1
"""The share of entries that are not zero from which a matrix is multiplied as a dense one."""


Places = tuple[Any, ...]
"""Rows and columns of entries."""


class Grouping(NamedTuple):
    """A grouping of rows.

    Attributes:
        columns: [rows, columns] whose effects vary between its levels, such as ones for levels.
        owner: [rows] the level of each row, from 0; −1 for rows of none, or of one not seen.
        levels: how many levels there are.
    """

    columns: Floats
    owner: Ints
    levels: int

    @property
    def size(self) -> int:
        """The number of its effects."""
        return self.levels * self.columns.shape[1]


class Pairs(NamedTuple):
    """The levels that clients meet, sorted by client.

    Attributes:
        client: [pairs] the client of each pair.
        level: [pairs] its level of the other grouping.
        sums: [pairs, varying, columns] sums over their rows of products of both's columns.
        shape: clients, levels.
    """

    client: Ints
    level: Ints
    sums: Floats
    shape: tuple[int, int]

    @classmethod
    def of(cls, own: Grouping, other: Grouping, weights: Floats | None) -> Pairs:
        """The pairs of rows."""
        key = own.owner * other.levels + other.owner
        order = np.argsort(key, kind="stable")
        there, first = np.unique(key[order], return_index=True)
        mine = own.columns if weights is None else own.columns * weights[:, None]
        products = mine[order][:, :, None] * other.columns[order][:, None, :]
        sums = np.add.reduceat(products, first, axis=0)
        return cls(there // other.levels, there % other.levels, sums, (own.levels, other.levels))

    def matrices(self, values: Floats) -> list[sparse.csr_array]:
        """For each varying column, [clients, levels · columns], of values by pair."""
        width = values.shape[2]
        columns = (self.level[:, None] * width + np.arange(width)).ravel()
        counts = np.bincount(self.client, minlength=self.shape[0]) * width
        ends = np.concatenate([[0], np.cumsum(counts)])
        shape = self.shape[0], self.shape[1] * width
        return [
            sparse.csr_array((values[:, i].ravel(), columns, ends), shape=shape)
            for i in range(values.shape[1])
        ]


class Sums(NamedTuple):
    """All that the equations need of the rows.

    Attributes:
        own: sums for the blocks.
        other: sums for the border's grouping.
        pairs: sums for where they meet.
    """

    own: Moments
    other: Moments
    pairs: Pairs


class Solution(NamedTuple):
    """The least-squares solution for given factors.

    Attributes:
        criterion: −2 log of the restricted likelihood, up to a constant.
        gradients: its gradients in the factors, of the blocks first.
        fixed: β.
        own: [clients, varying] u of the blocks.
        other: [levels, columns] u of the border's grouping.
        noise: σ².
        uncertainty: the inverse of what is left for β.
    """

    criterion: float
    gradients: tuple[Floats, Floats]
    fixed: Floats
    own: Floats
    other: Floats
    noise: float
    uncertainty: Floats


def solve(sums: Sums, factor: Floats, border_factor: Floats, places: Places) -> Solution:
    """Solve for one pair of factors: the clients' blocks first, and then the border.

    Args:
        sums: of rows.
        factor: Λ of the blocks' effects.
        border_factor: Λ of those in the border.
        places: rows and columns of the entries of ``factor`` that the gradient is wanted for.
    """
    zz, zx, xx = sums.own.zz, sums.own.zx, sums.own.xx
    pairs, (levels, w) = sums.pairs, sums.other.zz.shape[:2]
    p, v = len(xx) - 1, zz.shape[1]
    g, m = levels * w, levels * w + p
    scaled = zz @ factor
    block = np.eye(v) + factor.T @ scaled
    inverse = inverse_of(block)
    turned, turned_pairs = factor.T @ zx, factor.T @ pairs.sums
    moves, moves_pairs = inverse @ turned, inverse[pairs.client] @ turned_pairs
    sparse_turned, sparse_moves = pairs.matrices(turned_pairs), pairs.matrices(moves_pairs)
    # What the blocks leave of the border: the other grouping's columns, β's, and the label's.
    left = np.empty((m + 1, m + 1))
    left[:g, :g] = _diagonal(sums.other.zz)
    left[:g, g:] = sums.other.zx.reshape(g, p + 1)
    left[g:, g:] = xx - np.tensordot(turned, moves, axes=([0, 1], [0, 1]))
    for i in range(v):
        left[:g, :g] -= _product(sparse_turned[i], sparse_moves[i])
        left[:g, g:] -= sparse_turned[i].T @ moves[:, i]
    left[g:, :g] = left[:g, g:].T
    equations = _times(_times(left, border_factor, levels).T, border_factor, levels)
    equations[range(m), range(m)] += np.r_[np.ones(g), np.full(p, RIDGE * sums.own.rows)]
    uncertainty, logs = _inverted(equations[:m, :m])
    solved = uncertainty @ equations[:m, m]
    missed = equations[:m, m] - equations[:m, :m] @ solved  # by rounding
    freedom = max(sums.own.rows - sums.own.rank, 1)
    floor = max(1e-14 * xx[p, p], 1e-300)
    rest = max(float(equations[m, m] - (equations[:m, m] + missed) @ solved), floor)
    logs += float(np.linalg.slogdet(block)[1].sum())
    # The gradient: of the determinants, and of what is left of the label.
    apart = np.append(-solved, 1.0)
    share = np.outer(apart, apart) * freedom / rest
    share[:m, :m] += uncertainty
    share = _times(share, border_factor.T, levels).T
    of_border = np.tensordot(
        left[:g].reshape(levels, w, m + 1), share[:, :g].reshape(m + 1, levels, w), ([0, 2], [1, 0])
    )
    share = _times(share, border_factor.T, levels)
    remains, remains_pairs = zx - scaled @ moves, pairs.sums - scaled[pairs.client] @ moves_pairs
    of_blocks = (scaled @ inverse).sum(axis=0)
    of_blocks -= np.tensordot(remains @ share[g:, g:], moves, axes=([0, 2], [0, 2]))
    sparse_remains = pairs.matrices(remains_pairs)
    for i, j in zip(*places, strict=True):
        of_blocks[i, j] -= (sparse_remains[i] @ share[:g, g:] * moves[:, j]).sum()
        of_blocks[i, j] -= (sparse_moves[j] @ share[:g, g:] * remains[:, i]).sum()
        of_blocks[i, j] -= (_product(sparse_remains[i], sparse_moves[j]) * share[:g, :g]).sum()
    other = solved[:g].reshape(levels, w)
    own = moves @ np.append(-solved[g:], 1.0)
    for i in range(v):
        own[:, i] -= sparse_moves[i] @ (other @ border_factor.T).ravel()
    return Solution(
        criterion=logs + freedom * float(np.log(rest / freedom)),
        gradients=(2 * of_blocks, 2 * of_border),
        fixed=solved[g:],
        own=own,
        other=other,
        noise=rest / freedom,
        uncertainty=uncertainty[g:, g:],
    )


def _diagonal(blocks: Floats) -> Floats:
    """A matrix with these blocks on its diagonal."""
    count, size = blocks.shape[:2]
    found = np.zeros((count, size, count, size))
    found[range(count), :, range(count), :] = blocks
    return found.reshape(count * size, count * size)


def _times(matrix: Floats, factor: Floats, levels: int) -> Floats:
    """A matrix whose first columns, level by level, are multiplied by a factor."""
    found, g = matrix.copy(), levels * len(factor)
    found[:, :g] = (matrix[:, :g].reshape(-1, len(factor)) @ factor).reshape(len(matrix), g)
    return found


def _product(left: sparse.csr_array, right: sparse.csr_array) -> Floats:
    """leftᵀ · right, as a dense matrix."""
    if left.nnz > DENSE * left.shape[0] * left.shape[1]:
        return np.asarray(left.toarray().T @ right.toarray(), np.float64)
    return np.asarray((left.T @ right).toarray(), np.float64)


def _inverted(matrix: Floats) -> tuple[Floats, float]:
    """The inverse and the log determinant of a matrix that is positive definite."""
    if not len(matrix):
        return matrix, 0.0
    factor, failed = lapack.dpotrf(matrix, lower=1)
    if failed:
        raise DataError(
            "the equations of two groupings have no solution in floating point; bring the columns "
            "to one scale, and remove those that say the same as others"
        )
    logs = 2 * float(np.log(factor.diagonal()).sum())
    found = np.tril(lapack.dpotri(factor, lower=1)[0])
    return found + np.tril(found, -1).T, logs
