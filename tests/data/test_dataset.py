"""ClientData: structure, selection, splits, fingerprints, and what it refuses."""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from data_cases import contents, ragged
from hypothesis import given
from hypothesis import strategies as st

from sartor.data import PARTS, from_arrays, from_dict, synthetic
from sartor.data.dataset import assemble
from sartor.errors import ConfigError, DataError

sizes = st.lists(st.integers(1, 500), min_size=2, max_size=12)
fractions = st.tuples(st.floats(0, 0.6), st.floats(0, 0.39))


@given(sizes, fractions, st.integers(-(2**63), 2**63))
def test_split_is_a_partition(sizes, fractions, seed):
    validation, test = fractions
    data = from_dict(ragged(sizes))
    split = data.split(validation=validation, test=test, seed=seed)
    for k, m in enumerate(sizes):
        parts = [split.part(k, part) for part in PARTS]
        assert sorted(np.concatenate(parts)) == sorted(data.part(k))
        train, held_validation, held_test = map(len, parts)
        wanted = int(np.floor(test * m + 0.5)), int(np.floor(validation * m + 0.5))
        assert train >= 1
        assert held_test == min(wanted[0], m - 1)  # test gives way last
        assert held_validation == min(wanted[1], m - 1 - held_test)


@given(sizes, st.randoms(use_true_random=False))
def test_split_does_not_depend_on_the_order_of_clients(sizes, random):
    clients = ragged(sizes)
    order = list(clients)
    random.shuffle(order)
    how = {"unseen": 0.5, "validation": 0.2, "test": 0.2, "seed": 3}
    one = from_dict(clients).split(**how)
    other = from_dict({client: clients[client] for client in order}).split(**how)
    assert contents(one) == contents(other)


def test_split_does_not_depend_on_interleaved_rows():
    clients = ragged([5, 9, 3])
    place = np.concatenate([np.arange(m) for m in (5, 9, 3)])
    mixed = np.argsort(place, kind="stable")  # everybody's first row, everybody's second, ...
    x, y = (np.concatenate([c[name] for c in clients.values()])[mixed] for name in "xy")
    owner = np.repeat(list(clients), [5, 9, 3])[mixed]
    how = {"validation": 0.3, "test": 0.3}
    grouped = from_dict(clients)
    assert contents(from_arrays(x, y, owner).split(**how)) == contents(grouped.split(**how))


def test_splits_differ_between_seeds_and_are_fair():
    data = from_dict(ragged([400] * 10))
    tests = [data.split(test=0.25, seed=seed) for seed in range(30)]
    assert len({t.fingerprint for t in tests}) == 30
    hit = np.zeros(len(data.rows))
    for t in tests:
        for k in range(len(t)):
            hit[t.part(k, "test")] += 1
    # 30 draws with probability 1/4: mean exactly 7.5, variance 5.6
    assert hit.mean() == 7.5 and abs(hit.var() - 5.625) < 0.6
    unseen = np.mean([~synthetic(50).split(unseen=0.2, seed=s).seen for s in range(200)], axis=0)
    assert unseen.mean() == pytest.approx(0.2) and np.abs(unseen - 0.2).max() < 0.12


def test_parts_that_exist_are_kept():
    data = from_dict(ragged([20, 30])).split(test=0.2)
    later = data.split(validation=0.25)
    for k in range(2):
        assert later.part(k, "test").tolist() == data.part(k, "test").tolist()
        assert len(later.part(k, "validation")) == round(0.25 * data.sizes()[k])
    first = from_dict(ragged([20, 30])).split(validation=0.2)
    later = first.split(test=0.25)
    for k in range(2):
        assert later.part(k, "validation").tolist() == first.part(k, "validation").tolist()
    only_unseen = data.split(unseen=0.5)
    assert (only_unseen.rows == data.rows).all() and only_unseen.seen.sum() == 1


def test_merge_parts_undoes_any_split():
    data = from_dict(ragged([20, 1, 7]))
    split = data.split(unseen=0.4, test=0.3, seed=1).split(validation=0.2, seed=2)
    assert split.merge_parts().fingerprint == data.fingerprint


@pytest.mark.parametrize("name", ["unseen", "validation", "test"])
@pytest.mark.parametrize("value", [-0.1, 1.0, 2, float("nan"), "0.1", None])
def test_fractions_out_of_range(name, value):
    with pytest.raises(ConfigError, match=rf"{name} must be a number in \[0, 1\) \(got "):
        synthetic(10).split(**{name: value})


def test_split_refuses_what_cannot_be():
    data = synthetic(10)
    with pytest.raises(ConfigError, match=r"validation=0.5 and test=0.5"):
        data.split(validation=0.5, test=0.5)
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        data.split(test=0.5, seed=0.5)
    with pytest.raises(ConfigError, match=r"test=0.1.*has test rows.*merge_parts"):
        data.split(test=0.2).split(test=0.1)
    with pytest.raises(ConfigError, match=r"validation=0.1.*has validation rows.*merge_parts"):
        data.split(validation=0.2).split(validation=0.1)
    with pytest.raises(ConfigError, match=r"unseen=0.1.*has unseen clients.*merge_parts"):
        data.split(unseen=0.2).split(unseen=0.1)
    for fraction in (0.01, 0.99):
        with pytest.raises(ConfigError, match=f"unseen={fraction} of 10 clients"):
            data.split(unseen=fraction)


def test_access_by_client():
    data = from_dict(ragged([3, 2, 4], ids=["ann", "bob", "cleo"]), {"domain": ["u", "v", "u"]})
    assert len(data) == 3 and data.sizes().tolist() == [3, 2, 4]
    assert data.part(1).tolist() == [3, 4] and data.position("cleo") == 2
    assert data.client("bob")["x"][:, 0].tolist() == [1000, 1001]
    assert data.client("bob", "test")["y"].shape == (0,)
    with pytest.raises(DataError, match=r"no client 'clea'.*did you mean 'cleo'"):
        data.client("clea")
    with pytest.raises(ConfigError, match=r"part='valid'.*'validation'"):
        data.sizes("valid")
    assert "3 clients, 9 examples" in repr(data) and "\n" not in repr(data)


def test_select_keeps_each_client_as_it_was():
    data = from_dict(ragged([3, 2, 40, 5]), {"domain": list("abcd")})
    data = data.split(unseen=0.5, validation=0.2, test=0.2)
    everything = contents(data)
    assert contents(data.select(data.seen)) == {
        c: v for c, v in everything.items() if data.seen[data.position(c)]
    }
    chosen = data.select(iter(["c2", "c0"]))
    assert chosen.ids == ("c2", "c0") and chosen.columns["x"].base is not None
    assert contents(chosen) == {c: everything[c] for c in ("c2", "c0")}
    assert contents(chosen.split(unseen=0.0)) == contents(chosen)
    with pytest.raises(DataError, match="'c9'"):
        data.select(["c9"])
    with pytest.raises(DataError, match="mask over 4 clients"):
        data.select(np.array([True, False]))
    with pytest.raises(DataError, match="no clients"):
        data.select(np.zeros(4, bool))
    with pytest.raises(DataError, match="'c1' appears twice"):
        data.select(["c1", "c0", "c1"])


def test_data_cannot_be_changed():
    x = np.zeros((3, 1), np.float32)
    data = from_arrays(x, [0, 1, 0], ["a", "a", "b"])
    for array in (*data.columns.values(), data.rows, data.bounds, data.seen, data.hashes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    x[0] = 1  # the caller's own array is not locked
    with pytest.raises(FrozenInstanceError):
        data.ids = ()


def test_fingerprint_tells_datasets_apart():
    base = ragged([3, 4], ids=["a", "b"])
    data = from_dict(base)
    assert from_dict(ragged([3, 4], ids=["a", "b"])).fingerprint == data.fingerprint
    value = ragged([3, 4], ids=["a", "b"])
    value["b"]["x"][2, 1] += 1
    others = [
        from_dict(value),
        from_dict(ragged([3, 4], ids=["a", "c"])),
        from_dict(ragged([4, 3], ids=["a", "b"])),
        from_dict(base, {"domain": ["u", "v"]}),
        data.split(test=0.3),
        data.split(unseen=0.5),
        data.select(["a"]),
        data.select(["b", "a"]),
    ]
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 9


def test_fingerprint_samples_large_columns():
    y = np.zeros(260 << 20, np.uint8)
    prints = []
    for change in (None, 0, -1):
        if change is not None:
            y[change] ^= 1
        data = replace(from_dict({"a": {"y": [0]}}), columns={"y": y})
        start = time.perf_counter()
        prints.append(data.fingerprint)
        assert time.perf_counter() - start < 5
    assert len(set(prints)) == 3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(value):
    clients = ragged([3, 4], ids=["ann", "bob"])
    clients["bob"]["x"][2, 1] = value
    with pytest.raises(
        DataError, match=rf"client 'bob', column 'x', row 2 .*\(5 in all\): {value}"
    ):
        from_dict(clients)
    clients = ragged([3, 4], ids=["ann", "bob"])
    for c in clients.values():
        c["y"] = c["y"].astype(float)
    clients["ann"]["y"][0] = value
    with pytest.raises(DataError, match="client 'ann', column 'y', row 0"):
        from_dict(clients)


def test_the_last_block_is_scanned_too():
    x = np.zeros((1 << 20, 9), np.float32)
    x[-1, -1] = np.nan
    with pytest.raises(DataError, match=r"client 'b', column 'x', row 0 .*1048575 in all"):
        from_arrays(x, np.zeros(1 << 20, int), np.repeat(["a", "b"], [(1 << 20) - 1, 1]))


def test_structure_is_checked():
    y = np.arange(4)
    with pytest.raises(DataError, match=r"client 'bob', column 'y', row 1 .*: -2 found.*from 0"):
        from_dict({"ann": {"y": [0]}, "bob": {"y": [1, -2]}})
    with pytest.raises(DataError, match="'c' has no training rows"):
        assemble({"y": y}, np.array([0, 0, 1, 1]), ["a", "b", "c"])
    with pytest.raises(DataError, match="'b' has no training rows"):
        assemble({"y": y}, np.array([0, 0, 1, 1]), ["a", "b"], part=np.array([0, 1, 2, 2]))
    with pytest.raises(DataError, match="'a' appears twice"):
        assemble({"y": y}, np.array([0, 0, 1, 1]), ["a", "a"])
    with pytest.raises(DataError, match="equal lengths"):
        assemble({"y": y, "x": y[:3]}, np.array([0, 0, 1, 1]), ["a", "b"])
    with pytest.raises(DataError, match="no column 'y'"):
        assemble({"x": y}, np.array([0, 0, 1, 1]), ["a", "b"])
    with pytest.raises(DataError, match="no clients"):
        assemble({"y": y[:0]}, np.array([], int), [])
    with pytest.raises(DataError, match="column 'x' holds words"):
        assemble({"y": y, "x": np.array(list("abcd"))}, np.zeros(4, int), ["a"])
    with pytest.raises(DataError, match="'domain' needs one value for each of 1 clients"):
        assemble({"y": y}, np.zeros(4, int), ["a"], metadata={"domain": ["u", "v"]})
    good = assemble({"y": y}, np.array([0, 0, 1, 1]), ["a", "b"])
    for change in (
        {"bounds": good.bounds[:, :3]},
        {"bounds": good.bounds + 1},
        {"rows": good.rows + 1},
        {"rows": good.rows[:3]},
        {"seen": good.seen[:1]},
    ):
        with pytest.raises(DataError):
            replace(good, **change)


def test_many_small_clients_are_quick():
    p, m = 100_000, 10
    start = time.perf_counter()
    owner = np.repeat(np.arange(p), m)
    data = from_arrays(np.zeros((p * m, 4), np.float32), owner % 7, owner)
    split = data.split(unseen=0.2, validation=0.1, test=0.1)
    assert time.perf_counter() - start < 10
    assert split.sizes("test").tolist() == [1] * p and (~split.seen).sum() == 20_000
