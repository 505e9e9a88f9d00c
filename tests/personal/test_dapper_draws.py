"""What Dapper draws from other clients, generators and public data, and what it holds out."""

from __future__ import annotations

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
from dapper_cases import DENSITY, MODEL, clients, same, trial_losses
from plain import Dapper
from scipy import stats

import sartor
from sartor.errors import ConfigError, DataError
from sartor.personal import sources
from sartor.personal.dapper import Interpolation
from sartor.personal.sources import clients_sample
from sartor.personal.task import Task


@pytest.fixture(scope="module")
def data():
    return clients().split(unseen=0.2, seed=1)


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=3, cohort=3).fit(MODEL, data, seed=0)


@pytest.mark.parametrize("step", ["sample", "weight"])
def test_every_draw_is_used_once_in_a_pass(step):
    from sartor.engine import everybody

    data, r, batch = clients(sizes=(25, 40, 7)), 3, 10
    jobs = everybody(data, 0, np.zeros(3, np.int64))
    jobs.values["lambda"] = np.zeros(3, np.float32)
    # A sample that is the clients' own, one after another: its places are the numbers of draws.
    counts = r * data.sizes("train")
    sample = clients_sample(data, None)._replace(
        pool=np.arange(counts.sum()), first=np.cumsum(counts) - counts, counts=counts, own=True
    )
    steps = -(-data.sizes("train") // batch) * (r if step == "sample" else 1)
    rows = np.zeros((steps.max(), 3, batch), np.int64)
    mixed = Interpolation(sample, jobs.words, r, step)(rows, jobs, batch)
    for k, size in enumerate((25, 40, 7)):
        used = []
        for s in range(steps[k]):
            valid = min(batch, size - s % -(-size // batch) * batch)
            mine = mixed[s, k, :valid] if step == "sample" else mixed[s, k, batch:][: r * valid]
            used += mine.tolist()
        np.testing.assert_array_equal(np.sort(used), sample.first[k] + np.arange(counts[k]))


def test_all_lambdas_share_the_draws():
    data = clients(sizes=(25, 40))
    sample = clients_sample(data, None)
    from sartor.engine import everybody

    jobs = everybody(data, 0, np.zeros(2, np.int64))
    rows = np.full((10, 2, 10), -1)
    by_lambda = {}
    for lambda_ in (0.0, 0.4, 1.0):
        jobs.values["lambda"] = np.full(2, lambda_, np.float32)
        mixing = Interpolation(sample, jobs.words, r=2, step="sample")
        by_lambda[lambda_] = mixing(rows, jobs, 10)
    assert (by_lambda[1.0] == -1).all()
    assert (by_lambda[0.0] >= 0).all()
    taken = by_lambda[0.4] >= 0
    assert 0.4 < taken.mean() < 0.8
    np.testing.assert_array_equal(by_lambda[0.4][taken], by_lambda[0.0][taken])


def test_generated_examples_follow_the_central_model():
    draw = np.random.default_rng(0)
    data = sartor.data.from_dict({f"c{k}": {"y": draw.integers(0, 8, 400)} for k in range(4)})
    central = sartor.FedAvg(rounds=5).fit(DENSITY, data)
    logits = draw.standard_normal((1, 8)).astype(np.float32)
    central = dataclasses.replace(central, hypotheses={"logits": logits})
    algorithm = Dapper(source="generated", r=5)
    task = Task(DENSITY, central, np.zeros(4, np.int64), data, 0, sartor.Engine())
    sample = algorithm.trains_on(task).sample
    y = sample.data.columns["y"][sample.data.rows[sample.pool]]
    assert len(y) == 5 * 1600
    expected = np.exp(logits[0].astype(float)) / np.exp(logits[0].astype(float)).sum()
    _, p = stats.chisquare(np.bincount(y, minlength=8), len(y) * expected)
    assert p > 1e-3
    spans = sorted(zip(sample.first, sample.counts, strict=True))
    assert [first for first, _ in spans] == [0, 2000, 4000, 6000]
    personal = Dapper(source="generated", cover=(0.0, 0.5), select="train").fit(central, data)
    assert len(personal) == 4


def test_samplers_and_public_data(data, central):
    asked = []

    def sampler(key, count, cluster):
        asked.append((count, cluster))
        x = jax.random.normal(key, (count, 4))
        return {"x": x, "y": jnp.zeros(count, jnp.int32)}

    algorithm = Dapper(source="generated", cover=(0.0,), r=3, epochs=20, select="train")
    personal = algorithm.fit(central, data, sampler=sampler)
    assert asked == [(3 * int(data.sizes("train").sum()), 0)]
    x = data.columns["x"][:50]
    assert (personal.predict("c2", x) == 0).all()
    # Public data of one class does the same, and refuses what does not fit.
    ones = sartor.data.from_arrays(x, np.ones(50, int), ["public"] * 50)
    public = Dapper(source="public", cover=(0.0,), epochs=20, select="train")
    assert (public.fit(central, data, public=ones).predict("c2", x) == 1).all()
    with pytest.raises(ConfigError, match="takes the public data as an argument"):
        public.fit(central, data)
    with pytest.raises(ConfigError, match="together with source='public'"):
        Dapper().fit(central, data, public=ones)
    with pytest.raises(DataError, match=r"shape \(3,\) in column 'x'"):
        public.fit(
            central, data, public=sartor.data.from_arrays(x[:, :3], np.ones(50, int), [0] * 50)
        )
    with pytest.raises(DataError, match="was asked for"):
        algorithm.fit(central, data, sampler=lambda key, count, cluster: {"y": np.zeros(3)})
    with pytest.raises(ConfigError, match="give fit a sampler"):
        algorithm.fit(central, data)


@pytest.mark.parametrize("public", ["x", 5, {"y": [1]}, np.ones(3), (np.ones((3, 4)), np.ones(3))])
def test_public_data_that_is_none(data, central, public):
    with pytest.raises(ConfigError, match=r"Dapper: public must be sartor's ClientData, made with"):
        Dapper(source="public").fit(central, data, public=public)


@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        ("x", ConfigError, "Dapper: sampler must be a function"),
        (lambda key, count, cluster: None, DataError, r"must return a dict of columns.*got None"),
        (lambda key, count, cluster: np.ones(count), DataError, "must return a dict of columns"),
        (
            lambda key: {},
            ConfigError,
            r"sampler\(key, count, cluster\) raised TypeError: .*correct",
        ),
        (lambda key, count, cluster: 1 / 0, ConfigError, "raised ZeroDivisionError"),
        (lambda key, count, cluster: {"x": [[1.0], [1, 2]]}, ConfigError, "raised ValueError"),
        (lambda key, count, cluster: {"x": 1.0, "y": 1}, DataError, "was asked for"),
    ],
)
def test_samplers_that_are_none(data, central, sampler, error, message):
    with pytest.raises(error, match=message):
        Dapper(source="generated").fit(central, data, sampler=sampler)


def test_lambda_is_chosen_by_hold_out_and_all_data_is_used_after():
    draw = np.random.default_rng(0)
    # Clients alike, and one whose labels are the opposite: only that one gains from its own data.
    rows = {}
    for k in range(6):
        x = draw.standard_normal((80, 4)).astype(np.float32)
        y = (x[:, 0] > 0).astype(int) ^ (k == 5)
        rows[f"c{k}"] = {"x": x, "y": y}
    data = sartor.data.from_dict(rows).split(validation=0.3, seed=0)
    model = sartor.models.logistic(features=4, classes=2, scale=False)
    central = sartor.FedAvg(rounds=60, cohort=5, learning_rate=0.3).fit(
        model, data.select([f"c{k}" for k in range(5)])
    )
    personal = Dapper(cover=(0.0, 0.5, 1.0), learning_rate=0.3, epochs=3).fit(central, data)
    assert personal.lambda_["c5"] == 1.0
    assert set(personal.clients["c5"]) == {"cluster", "how", "lambda"}
    assert {d["how"] for d in personal.clients.values()} == {"holdout"}
    scores = personal.evaluate(data, part="validation", allow_trained=True)
    assert scores.extra["lambda"][5] == 1.0
    # The refit reads the validation part, too: with nothing to choose, only the training part is.
    other = Dapper(cover=(1.0,), learning_rate=0.3, epochs=3).fit(central, data)
    assert {d["how"] for d in other.clients.values()} == {"given"}
    assert not np.allclose(
        other.params("c5")["dense_1"]["w"], personal.params("c5")["dense_1"]["w"]
    )


def test_small_clients_fall_back_and_say_so(data, central):
    with pytest.warns(UserWarning, match=r"5 of 6 clients have no validation part") as warned:
        personal = Dapper(cover=(0.0, 1.0), folds=3).fit(central, data)
    assert any("1 of 6 clients have too little data" in str(w.message) for w in warned)
    how = {client: decided["how"] for client, decided in personal.clients.items()}
    assert how["c1"] == "prior"
    assert sorted(how.values()) == ["kfold"] * 5 + ["prior"]


def test_choice_is_the_lowest_loss_of_the_folds():
    from sartor.personal.choosing import make_trials

    data = clients(sizes=(7, 2, 12))
    trials = make_trials(data, "kfold", 5, seed=0)
    for k, size in enumerate((7, 2, 12)):
        mine = np.flatnonzero(trials.client == k)
        assert len(mine) == min(5, size)
        held = []
        for t in mine:
            out = trials.held.at(trials.held.first[t] + np.arange(trials.held.sizes[t]))
            kept = trials.train.at(trials.train.first[t] + np.arange(trials.train.sizes[t]))
            assert not set(out) & set(kept)
            assert len(set(out) | set(kept)) == size
            held += out.tolist()
        assert sorted(held) == list(range(data.bounds[k, 0], data.bounds[k, 1]))


def test_guard_keeps_the_central_model_where_it_is_better():
    draw = np.random.default_rng(0)
    rows = {}
    for k in range(6):
        x = draw.standard_normal((60, 4)).astype(np.float32)
        rows[f"c{k}"] = {"x": x, "y": (x[:, 0] > 0).astype(int) ^ (k == 5)}
    data = sartor.data.from_dict(rows).split(validation=0.3, test=0.2, seed=0)
    model = sartor.models.logistic(features=4, classes=2, scale=False)
    most = data.select([f"c{k}" for k in range(5)])
    central = sartor.FedAvg(rounds=80, cohort=5, learning_rate=0.5).fit(model, most)
    personal = plain.Finetune(epochs=2, learning_rate=0.5, guard=True).fit(central, data)
    assert not personal.clients["c5"]["kept"]
    kept = [client for client, decided in personal.clients.items() if decided["kept"]]
    assert kept
    for client in kept:
        same(personal.params(client), central.params)
    with pytest.raises(ConfigError, match="guard needs a central model"):
        plain.Local(guard=True).fit(model, data)


@pytest.mark.filterwarnings("ignore:Dapper")
def test_clusters_draw_from_their_own(data):
    central = sartor.HypCluster(q=2, start="random", rounds=4, cohort=4).fit(MODEL, data)
    cluster = central.assign(data)
    sample = clients_sample(data, cluster)
    for k in range(len(data)):
        rows = sample.pool[sample.first[k] : sample.first[k] + sample.counts[k]]
        owners = np.searchsorted(data.bounds[:, 3], rows, side="right")
        inside = (cluster[owners] == cluster[k]).all()
        assert inside or not data.seen[cluster == cluster[k]].any()
        assert data.seen[owners].all()
    personal = Dapper(mixture="cluster", cover=(0.0, 1.0), folds=2).fit(central, data)
    assert personal.cluster == dict(zip(data.ids, cluster.tolist(), strict=True))


def test_a_client_that_is_alone_does_not_draw_what_it_holds_out():
    from sartor.personal.choosing import make_trials, trial_jobs
    from sartor.personal.statistics import Solver, mean_loss, minimiser, statistics_of
    from sartor.randomness import mix

    data = clients(sizes=(20,))
    nobody = np.zeros(1, np.int64)
    jobs = trial_jobs(data, make_trials(data, "kfold", 4, seed=0), 0, nobody, np.array([0.0]))
    sample = clients_sample(data)
    mixing = Interpolation(sample, mix(0, "personal", data.hashes), 3, "sample")
    rows = mixing(np.zeros((12, jobs.number, 5), np.int64), jobs, 5)
    for job in range(jobs.number):
        held = jobs.held.at(jobs.held.first[job] + np.arange(jobs.held.sizes[job]))
        assert not np.isin(rows[:, job], held).any()
    draw = np.random.default_rng(0)
    noise = sartor.data.from_dict(
        {"a": {"x": draw.standard_normal((12, 5)), "y": draw.standard_normal(12)}}
    )
    jobs = trial_jobs(noise, make_trials(noise, "kfold", 4, seed=0), 0, nobody, np.array([0.0]))
    train = statistics_of(noise, jobs.train)
    expected = mean_loss(
        statistics_of(noise, jobs.held), minimiser(train, train, np.zeros(jobs.number))
    )
    np.testing.assert_allclose(trial_losses(Solver.of(noise), jobs), expected)


def test_of_several_clusterings_each_hypothesis_has_its_own_circle():
    data = clients(sizes=(5, 6, 7, 8))
    # Two clusterings, of one and of two hypotheses; the first two clients chose the first.
    members = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 0], [1, 0, 1]], bool)
    sample = clients_sample(data, np.array([0, 0, 1, 2]), members)
    assert sample.counts.tolist() == [26, 26, 5 + 7, 6 + 8]
    for k in range(4):
        begin, end = sample.mine[k]
        assert sorted(sample.pool[begin:end]) == list(range(*data.bounds[k, :2]))


@pytest.mark.parametrize("step", ["sample", "weight"])
def test_folds_are_held_out_of_the_sample_too(step):
    from sartor.personal.choosing import make_trials, trial_jobs

    data = clients(sizes=(30, 20, 25))
    nobody = np.zeros(3, np.int64)
    trials = make_trials(data, "kfold", 3, seed=0)
    jobs = trial_jobs(data, trials, 0, nobody, np.array([0.0]))
    sample = clients_sample(data, None)
    from sartor.randomness import mix

    mixing = Interpolation(sample, mix(0, "personal", data.hashes), r=3, step=step)
    rows = np.zeros((12, jobs.number, 5), np.int64)
    drawn_rows = mixing(rows, jobs, 5)[..., -5:]
    owner = np.searchsorted(data.bounds[:, 3], drawn_rows, side="right")
    assert (owner != jobs.client[None, :, None]).all()
    assert len(np.unique(owner)) == 3
    # One sample for all folds of a client, and for its final model.
    again = drawn_rows[:, jobs.client == 0]
    assert (again == again[:, :1]).all()


def test_other_public_data_is_other_work(tmp_path, data, central):
    x = data.columns["x"][:40]
    made = []
    for label in (0, 1):
        public = sartor.data.from_arrays(x, np.full(40, label), ["p"] * 40)
        algorithm = Dapper(source="public", cover=(0.0,), epochs=20, select="train")
        personal = algorithm.fit(central, data, public=public, directory=tmp_path / "work")
        made.append(personal.predict("c2", x))
    assert (made[0] == 0).all()
    assert (made[1] == 1).all()


def test_public_data_in_another_form_is_refused(data, central):
    x = data.columns["x"][:10]
    public = sartor.data.from_arrays((x > 0).astype(np.uint8), np.zeros(10, int), ["p"] * 10)
    with pytest.raises(DataError, match="does not fit the clients' float32"):
        Dapper(source="public").fit(central, data, public=public)


@pytest.mark.parametrize("source", ["clients", "statistics"])
def test_a_single_client_has_nobody_to_mix_with(source):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((20, 4)).astype(np.float32)
    data = sartor.data.from_arrays(x, x[:, 0], np.repeat(["a", "b"], 10))
    central = sartor.FedAvg(rounds=1).fit(sartor.models.linear(4), data)
    with pytest.raises(DataError, match=r"nobody else is in the data \('b'\).*public=data"):
        Dapper(source=source).fit(central, data.select(["b"]))
    Dapper(cover=(0.5,), source="public").fit(
        central, data.select(["b"]), public=data.select(["a"])
    )


def test_clients_that_are_alone_in_their_cluster_are_warned_of():
    data = clients((20, 20, 20))
    order = np.argsort(data.hashes)
    place = np.zeros(3)
    place[order[0]] = 9.0  # one client is far from the others
    data = dataclasses.replace(data, metadata={"place": place})
    central = sartor.KMeansClusters(q=2, rounds=1).fit(MODEL, data)
    lonely = data.ids[order[0]]
    with pytest.warns(UserWarning, match=f"1 of 3 clients have no other.*'{lonely}'"):
        Dapper(cover=(0.5,), mixture="cluster").fit(central, data)
    Dapper(cover=(0.5,), mixture="all").fit(central, data)  # without a warning
    lonely = data.select([lonely])
    with pytest.raises(DataError, match="mixture to 'all'"):
        sources.check_company(lonely, np.zeros(1, np.int64), np.ones((1, 1), bool))


def test_a_guard_needs_a_hold_out():
    with pytest.raises(ConfigError, match="a guard needs examples that were held out"):
        Dapper(guard=True, select="train")


@pytest.mark.parametrize("algorithm", [Dapper(cover=(0.0, 1.0)), plain.Finetune(guard=True)])
def test_trials_that_were_stopped_go_on(algorithm, central, tmp_path, monkeypatch):
    from sartor.personal import choosing

    split = clients((4, 9, 5, 30, 6, 12), seed=1).split(validation=0.25, seed=0)
    whole = algorithm.fit(central, split, engine=sartor.Engine(lanes=2))
    monkeypatch.setattr(choosing, "SAVE_SECONDS", 0.0)
    noted = []

    def stopping(self, block):
        plain(self, block)
        noted.append(len(block.jobs))
        if len(noted) == 2:
            raise KeyboardInterrupt

    plain = choosing.TrialLosses.note
    monkeypatch.setattr(choosing.TrialLosses, "note", stopping)
    settings = {"directory": tmp_path / "work", "engine": sartor.Engine(lanes=2)}
    with pytest.raises(KeyboardInterrupt):
        algorithm.fit(central, split, **settings)
    again = algorithm.fit(central, split, **settings)
    jobs = len(split) * len(algorithm.choices().cover or (1.0,))
    assert sum(noted) == jobs  # none was tried twice
    assert again.clients == whole.clients
    for client in split.ids:
        same(again.params(client), whole.params(client))
    before = len(noted)
    algorithm.fit(central, split, **settings)
    assert len(noted) == before


def test_trials_are_not_counted_again_after_every_block(central, monkeypatch):
    """Otherwise the time of a fit would grow with the square of the number of clients."""
    from sartor.personal import choosing

    counted, blocks = [], []
    done, note = choosing.TrialLosses.done, choosing.TrialLosses.note
    counting = property(lambda self: (counted.append(self), done.fget(self))[1])
    monkeypatch.setattr(choosing.TrialLosses, "done", counting)
    monkeypatch.setattr(
        choosing.TrialLosses, "note", lambda self, block: (blocks.append(self), note(self, block))
    )
    algorithm = Dapper(cover=(0.0, 1.0), select="kfold", folds=2)
    algorithm.fit(central, clients((4, 9, 5, 30, 6, 12)), engine=sartor.Engine(lanes=2))
    assert len(blocks) == 12
    assert len(counted) <= 2
    assert blocks[0].ended == 24


@pytest.mark.soak
def test_the_time_of_folds_grows_with_the_number_of_clients():
    seconds = []
    for count in (20_000, 200_000):
        sizes = np.random.default_rng(0).integers(2, 12, count)
        data = clients(sizes)
        central = sartor.FedAvg(rounds=5).fit(MODEL, data)
        began = time.process_time()  # whatever else the machine does
        Dapper(cover=(0.0, 0.5, 1.0), select="kfold", folds=3).fit(central, data)
        seconds.append(time.process_time() - began)
    assert seconds[1] < 12 * seconds[0]
