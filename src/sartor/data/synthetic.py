"""The synthetic data of the paper (appendix "Synthetic dataset"): densities in four clusters.

X is empty and Y has d symbols. Client k draws from a mixture of its cluster's symbol, the uniform
distribution, and a symbol of its own.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from sartor.checking import Count, Range, check_memory, checks_arguments
from sartor.data.dataset import ClientData, as_sizes, assemble
from sartor.randomness import client_hashes, mix, uniforms
from sartor.types import Floats

Layout = Literal["literal", "shifted"]

_CLUSTERS = 4

Symbols = Annotated[int, Range(_CLUSTERS + 1)]


@checks_arguments
def synthetic_distributions(
    clients: Count = 100, symbols: Symbols = 50, layout: Layout = "literal"
) -> Floats:
    """The clients' true distributions D_k, as an array [p, d].

    D_k = 0.5 P_{k % 4} + 0.25 U + 0.25 P_{k % (d - 4)}, where P_y is the point mass on y.

    Args:
        clients: p, the number of clients.
        symbols: d, the number of symbols; more than 4.
        layout: "literal" is the formula as printed, where some clients' own symbol is one of the
            clusters' symbols 0..3; "shifted" takes 4 + k % (d - 4) instead, so none is.

    >>> synthetic_distributions(clients=2, symbols=8)
    array([[0.78125, 0.03125, 0.03125, 0.03125, 0.03125, 0.03125, 0.03125,
            0.03125],
           [0.03125, 0.78125, 0.03125, 0.03125, 0.03125, 0.03125, 0.03125,
            0.03125]])
    """
    what = f"the distributions of {clients:,} clients over {symbols:,} symbols"
    check_memory(what, 16.0 * clients * symbols, "choose fewer")
    k = np.arange(clients)
    own = k % (symbols - _CLUSTERS) + (_CLUSTERS if layout == "shifted" else 0)
    distributions = np.full((clients, symbols), 0.25 / symbols)
    distributions[k, k % _CLUSTERS] += 0.5
    distributions[k, own] += 0.25
    return distributions


@checks_arguments
def synthetic(
    clients: Count = 100,
    symbols: Symbols = 50,
    samples: Count | Sequence[Count] = 100,
    layout: Layout = "literal",
    seed: int = 0,
) -> ClientData:
    """Samples of the paper's synthetic clients: only a "y" column, and the metadata "cluster".

    Args:
        clients: p, the number of clients.
        symbols: d, the number of symbols; more than 4.
        samples: m_k, one number for all clients or one for each.
        layout: see `synthetic_distributions`.
        seed: any integer.

    >>> synthetic(clients=3, samples=[5, 1, 2]).client("client-002")["y"].shape
    (2,)
    """
    distributions = synthetic_distributions(clients, symbols, layout)
    sizes = as_sizes("samples", samples, clients)
    total = int(sizes.sum())
    check_memory(f"{total:,} samples", 40.0 * total, "choose fewer")
    ids = tuple(f"client-{k:03d}" for k in range(clients))
    owner = np.repeat(np.arange(clients), sizes)
    draw = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
    u = uniforms(mix(seed, "synthetic", client_hashes(ids)[owner], draw))
    # One search for all clients: client k's cumulative distribution lies in (k, k + 1].
    cumulative = np.cumsum(distributions, axis=1)
    cumulative[:, -1] = 1.0
    stacked = (cumulative + np.arange(clients)[:, None]).ravel()
    y = np.searchsorted(stacked, u + owner, side="right") - owner * symbols
    y = np.minimum(y, symbols - 1)  # u + owner may round up to the next integer
    return assemble({"y": y}, owner, ids, metadata={"cluster": np.arange(clients) % _CLUSTERS})
