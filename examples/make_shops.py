"""Makes shops.csv: forty shops whose customers return goods for different reasons."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

NAMES = ("price", "size", "delay", "rating")


def main() -> None:
    """Write the table beside this file."""
    draw = np.random.default_rng(0)
    common = np.array([0.8, 0.0, 1.0, -1.2])
    path = Path(__file__).with_name("shops.csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shop", *NAMES, "returned"])
        for shop in range(40):
            own = common + draw.normal(0, 1.0, 4)
            for x in draw.normal(0, 1, (int(draw.integers(15, 120)), 4)):
                returned = draw.random() < 1 / (1 + np.exp(-2 * x @ own))
                writer.writerow([f"shop-{shop}", *np.round(x, 3), int(returned)])


if __name__ == "__main__":
    main()
