"""What the tests of data/ share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sartor.data import PARTS, ClientData

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


def ragged(sizes: list[int], width: int = 2, ids: list[str] | None = None) -> dict:
    """A dict of clients whose feature x[:, 0] tells every row apart."""
    ids = ids or [f"c{k}" for k in range(len(sizes))]
    return {
        client: {
            "x": 1000.0 * k + np.arange(m)[:, None] + np.zeros(width),
            "y": np.arange(m) % 3,
        }
        for k, (client, m) in enumerate(zip(ids, sizes, strict=True))
    }


def contents(data: ClientData) -> dict:
    """Everything a dataset says about each client, whatever its layout in memory."""
    return {
        client: (
            bool(data.seen[k]),
            {name: values[k].item() for name, values in data.metadata.items()},
            {
                part: {n: (c.dtype, c.tolist()) for n, c in data.client(client, part).items()}
                for part in PARTS
            },
        )
        for k, client in enumerate(data.ids)
    }
