"""What the tests of data/ share."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from sartor.data import PARTS, ClientData
from sartor.data import open as open_data
from sartor.errors import SartorError


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


def open_damaged(path: Path, data: st.DataObject) -> None:
    """Open a file with some bytes changed and the end cut off: an error of ours, or none."""
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    with contextlib.suppress(SartorError):  # and no other error
        open_data(path)


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
