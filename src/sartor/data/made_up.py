"""Made-up tables for examples, drawn with fixed seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sartor.types import Floats, Ints


def _gaps(draw: np.random.Generator, values: Any, share: float) -> Any:
    """Arrow values, some of which are missing."""
    return pa.array(values, mask=draw.random(len(values)) < share)


def _chosen(draw: np.random.Generator, chance: Floats) -> Ints:
    return (draw.random(len(chance)) < 1 / (1 + np.exp(-chance))).astype(np.int64)


def _dates(days: Any, start: str = "2026-01-01") -> Any:
    """Days since a date, as dates."""
    return pa.array(np.datetime64(start, "D") + np.floor(days).astype("timedelta64[D]"))


def shops() -> Any:
    """Each shop has a level, a price effect and a favourite size of its own."""
    draw = np.random.default_rng(20261101)
    sizes = np.maximum(12, 6000 * (weight := draw.gamma(1.2, size=40)) / weight.sum()).astype(int)
    sizes[sizes.argmax()] += 6000 - sizes.sum()
    shop = draw.permutation(np.repeat(np.arange(40), sizes))
    price = np.round(np.exp(draw.normal(3.4, 0.7, 6000)), 2)
    size, kind = draw.integers(0, 4, 6000), draw.integers(0, 5, 6000)
    delay, rating = draw.poisson(3, 6000), np.clip(draw.normal(3.8, 0.9, 6000), 1, 5).round(1)
    member, day = draw.random(6000) < 0.3, draw.uniform(0, 300, 6000)
    level, slope = draw.normal(0, 0.9, 40), draw.normal(0, 0.7, 40)
    tight = draw.normal(0, 0.8, (40, 4))  # some shops' sizes run small
    score = -1.2 + level[shop] + (0.4 + slope[shop]) * (np.log(price) - 3.4) / 0.7
    score += tight[shop, size] + 0.15 * (delay - 3) - 0.5 * (rating - 3.8) - 0.3 * member
    score += np.array([0.6, 0.2, 0.0, -0.3, -0.5])[kind] + 0.4 * np.sin(2 * np.pi * day / 300)
    return pa.table({
        "shop": [f"shop {k:02d}" for k in shop],
        "ordered": _dates(day),
        "price": price,
        "size": np.array(["S", "M", "L", "XL"])[size],
        "kind": _gaps(draw, np.array(["shoes", "coat", "shirt", "belt", "hat"])[kind], 0.03),
        "member": member,
        "delay": _gaps(draw, delay, 0.08),
        "rating": _gaps(draw, rating, 0.25),
        "returned": np.array(["no", "yes"])[_chosen(draw, score)],
    })  # fmt: skip


def deliveries() -> Any:
    """Drivers with 1 to 3,000 deliveries: some are slow in the rain, others in the evening."""
    draw = np.random.default_rng(20261102)
    sizes = np.geomspace(1, 3000, 60).astype(int)
    driver = np.repeat(draw.permutation(60), sizes)
    rows = len(driver)
    tour = np.cumsum(draw.random(rows) < 1 / 8) + 10_000 * driver
    _, tour = np.unique(tour, return_inverse=True)
    day = draw.uniform(0, 320, tour.max() + 1)[tour].astype(int)
    hour = np.clip(draw.normal(14, 3, tour.max() + 1)[tour] + draw.uniform(0, 2, rows), 7, 21.9)
    rain = draw.random(tour.max() + 1)[tour] < 0.25
    distance = np.round(draw.gamma(2.0, 3.0, rows), 1)
    vehicle = draw.choice(["van", "bike", "car"], rows, p=[0.6, 0.15, 0.25])
    weight, floor = np.round(draw.gamma(1.5, 4.0, rows), 1), draw.integers(0, 6, rows)
    level, wet, late = draw.normal(0, [[3.0], [2.0], [1.5]], (3, 60))
    minutes = 12 + 2.1 * distance + 0.9 * floor + level[driver] + 0.2 * weight
    minutes += rain * (3 + wet[driver]) + (hour > 17) * (2 + late[driver])
    minutes += np.where(vehicle == "bike", 0.8 * distance - 4, 0)
    minutes += draw.normal(0, 2, tour.max() + 1)[tour]  # the traffic of the tour
    minutes = np.round(np.maximum(2, minutes + draw.normal(0, 4, rows)), 1)
    far = draw.choice(rows, 3, replace=False)
    distance[far] *= 1000  # in metres by mistake
    when = np.datetime64("2026-01-01", "s") + (day * 86_400 + hour * 3600).astype("timedelta64[s]")
    mixed = draw.permutation(rows)
    table = pa.table({
        "driver": [f"driver {k:02d}" for k in driver],
        "tour": tour,
        "started": when,
        "distance": distance,
        "vehicle": vehicle,
        "weather": _gaps(draw, np.where(rain, "rain", "dry"), 0.1),
        "weight": _gaps(draw, weight, 0.2),
        "floor": floor,
        "minutes": minutes,
    })  # fmt: skip
    return table.take(pa.array(mixed))


def calls() -> Any:
    """The agent says nothing about a call."""
    draw = np.random.default_rng(20261103)
    waited, length = draw.gamma(1.5, 2.0, 5000).round(1), draw.gamma(2.0, 3.0, 5000).round(1)
    topic, channel = draw.integers(0, 5, 5000), draw.integers(0, 3, 5000)
    score = -0.8 + 0.2 * waited - 0.1 * length + np.array([0.8, 0.3, 0, -0.2, -0.6])[topic]
    return pa.table({
        "agent": [f"agent {k:02d}" for k in draw.integers(0, 50, 5000)],
        "called": _dates(draw.uniform(0, 200, 5000)),
        "waited": _gaps(draw, waited, 0.05),
        "length": length,
        "topic": np.array(["bill", "outage", "contract", "moving", "other"])[topic],
        "channel": np.array(["phone", "chat", "mail"])[channel],
        "again": _chosen(draw, score).astype(bool),
    })  # fmt: skip


def ratings() -> Any:
    """Users and films have levels of their own, and users differ in what they like."""
    draw = np.random.default_rng(20261104)
    user = draw.choice(200, 8000, p=(w := draw.gamma(0.8, size=200) + 0.05) / w.sum())
    film = draw.choice(120, 8000, p=(w := draw.gamma(0.8, size=120) + 0.05) / w.sum())
    genre, length, year = (draw.integers(a, b, 120) for a, b in ((0, 4), (80, 200), (1960, 2026)))
    kind, fond = draw.normal(0, 0.5, 200), draw.normal(0, 0.5, (200, 4))
    patience = draw.normal(0, 0.3, 200)
    stars = 3.4 + kind[user] + draw.normal(0, 0.5, 120)[film] + fond[user, genre[film]]
    stars += patience[user] * (length[film] - 140) / 35 + draw.normal(0, 0.6, 8000)
    return pa.table({
        "user": [f"u{k:03d}" for k in user],
        "film": [f"film {k:03d}" for k in film],
        "watched": _dates(draw.uniform(0, 365, 8000)),
        "genre": np.array(["comedy", "drama", "horror", "western"])[genre[film]],
        "length": length[film],
        "year": _gaps(draw, year[film], 0.04),
        "stars": np.clip(np.round(2 * stars) / 2, 0.5, 5.0),
    })  # fmt: skip
