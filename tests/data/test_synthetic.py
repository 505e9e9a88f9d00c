"""The paper's synthetic data: its population limits, and samples that follow it."""

from __future__ import annotations

import numpy as np
import pytest
from data_cases import contents

from sartor.data import synthetic, synthetic_distributions
from sartor.errors import ConfigError


def entropy(distribution):
    return -(distribution * np.log(distribution)).sum(axis=-1)


@pytest.mark.parametrize(
    ("layout", "one", "four", "own"),
    [("literal", 3.166, 2.469, 1.929), ("shifted", 3.249, 2.541, 1.965)],
)
def test_population_limits(layout, one, four, own):
    d = synthetic_distributions(layout=layout)
    np.testing.assert_allclose(d.sum(axis=1), 1, rtol=1e-12)
    assert entropy(d.mean(axis=0)) == pytest.approx(one, abs=1e-3)
    assert np.mean([entropy(d[k::4].mean(axis=0)) for k in range(4)]) == pytest.approx(
        four, abs=1e-3
    )
    assert entropy(d).mean() == pytest.approx(own, abs=1e-3)


def test_samples_follow_the_distributions():
    m = 40_000
    data = synthetic(clients=6, symbols=10, samples=m, layout="shifted")
    expected = m * synthetic_distributions(6, 10, "shifted")
    for k, client in enumerate(data.ids):
        counts = np.bincount(data.client(client)["y"], minlength=10)
        chi2 = ((counts - expected[k]) ** 2 / expected[k]).sum()
        assert chi2 < 33.7  # 9 degrees of freedom, one in 10,000
    assert data.metadata["cluster"].tolist() == [0, 1, 2, 3, 0, 1]
    assert list(data.columns) == ["y"] and data.ids[0] == "client-000"


def test_a_client_does_not_depend_on_the_others_nor_on_its_size():
    few, many = synthetic(clients=5, samples=10), synthetic(clients=9, samples=range(20, 29))
    for client in few.ids:
        longer = many.client(client)["y"]
        assert few.client(client)["y"].tolist() == longer[:10].tolist()
    assert many.sizes().tolist() == list(range(20, 29))
    assert contents(synthetic(5, seed=1)) != contents(synthetic(5, seed=2))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("clients", 0),
        ("symbols", 4),
        ("layout", "other"),
        ("samples", 0),
        ("samples", [1, 2]),
        ("samples", 1.5),
    ],
)
def test_wrong_arguments(argument, value):
    with pytest.raises(ConfigError, match=argument):
        synthetic(**{argument: value})
