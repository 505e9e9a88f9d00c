"""Clients that differ are told apart, and those that do not get one answer."""

from __future__ import annotations

import numpy as np

from sartor.advice.decide import best, decide, is_clear
from sartor.advice.holdout import HeldOutLosses


def held_out(owner, loss, trained, fold=None):
    """Losses with folds, assigned in turn to each client's examples."""
    within = np.arange(len(owner)) - np.searchsorted(owner, owner)
    return HeldOutLosses(owner, loss, trained, within % 5 if fold is None else fold)


def drawn(seed, gain, clients=80, examples=20, noise=1.0, tail=0.0):
    """Held-out losses of a global model, and of a local one that is better by ``gain``."""
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), examples)
    base = draw.exponential(noise, len(owner))
    gains = np.broadcast_to(np.asarray(gain(draw, clients)), clients)
    unlucky = 20 * tail * (draw.random(len(owner)) < 0.05)
    own = base - gains[owner] + noise * draw.normal(size=len(owner)) + unlucky
    trained = np.full(len(owner), examples * 4 // 5)
    losses = held_out(owner, {"global": base, "local": own}, trained)
    return losses, gains - tail, np.full(clients, examples)


def regret(found, gains):
    got = np.where(best(found.score) == "local", gains, 0.0)
    return float((np.maximum(gains, 0) - got).mean())


def test_clients_that_differ_are_told_apart():
    losses, gains, size = drawn(0, lambda draw, n: draw.choice([-1.0, 1.0], n))
    found = decide(losses, None, size)
    assert found.trust and regret(found, gains) < 0.02
    assert ((best(found.score) == "local") == (gains > 0)).mean() > 0.95


def test_clients_that_do_not_differ_get_one_answer():
    for gain, answer in ((0.3, "local"), (-0.3, "global")):
        losses, _, size = drawn(1, lambda draw, n, gain=gain: gain)
        found = decide(losses, None, size)
        assert (best(found.score) == answer).mean() > 0.97


def test_unlucky_examples_do_not_make_clients_differ():
    """Long tails: single examples that cost twenty times as much."""
    regrets = []
    for seed in range(10):
        losses, gains, size = drawn(seed, lambda draw, n: 0.5, tail=1.0)
        regrets.append(regret(decide(losses, None, size), gains))
    assert np.mean(regrets) < 0.1  # to take the local model by its luck costs much more


def test_never_much_worse_than_the_best_constant():
    for seed in range(10):
        losses, gains, size = drawn(seed, lambda draw, n: 0.2 + 0.5 * draw.normal(size=n))
        found = decide(losses, None, size)
        constant = min(np.maximum(gains, 0).mean() - gains.mean(), np.maximum(gains, 0).mean())
        assert regret(found, gains) <= constant + 0.02


def test_what_more_examples_will_bring_is_added():
    """L(n) = 2 + 10/n: fitted on 12 and 16 of 20 examples it is worse than 2.6, on all better."""
    clients, examples = 50, 20
    owner = np.repeat(np.arange(clients), examples)
    draw = np.random.default_rng(0)

    def losses(share):
        own = 2 + 10 / (share * examples) + 0.1 * draw.normal(size=len(owner))
        trained = np.full(len(owner), round(share * examples))
        return held_out(owner, {"global": np.full(len(owner), 2.55), "local": own}, trained)

    size = np.full(clients, examples)
    assert (best(decide(losses(0.8), None, size).score) == "global").all()
    found = decide(losses(0.8), losses(0.6), size)
    assert (best(found.score) == "local").all()
    assert np.allclose(found.gain["local"], 0.05, atol=0.02)


def test_of_few_examples_each_size_has_its_own_curve():
    """L(n) = 1 + 1/n exactly: what all examples bring is right however few there are."""
    sizes, folds = np.repeat([2, 3, 4, 5, 9], 40), 5
    owner = np.repeat(np.arange(len(sizes)), sizes)
    every = sizes[owner]
    held = -(-every // folds)
    most, some = every - held, np.maximum(every - 2 * held, 1)
    some = np.where(every > 2, some, most)  # of two examples no fold more can be left out

    def losses(trained):
        return held_out(owner, {"global": np.ones(len(owner)), "local": 1 + 1 / trained}, trained)

    found = decide(losses(most), losses(some), sizes)
    truth = -1.0 / sizes
    tells = sizes > 2
    assert np.abs(found.gain["local"] - truth)[tells].max() < 0.12
    assert np.abs(found.gain["local"] - truth)[sizes >= 5].max() < 0.05


def test_what_advice_paid_is_honest():
    """Where nothing is to be gained, the expected gain of the best is too high.

    What was paid is so by no more than that it is never below 0: else nothing is advised.
    """
    expected, paid, chance = [], [], 1 / np.sqrt(80 * 10)  # of the mean of all differences
    for seed in range(40):
        losses, _, size = drawn(seed, lambda draw, n: 0.0, examples=10)
        found = decide(losses, None, size)
        expected.append(np.maximum(found.gain["local"], 0).mean())
        paid.append(np.nanmean(found.paid))
    assert 0 <= np.mean(paid) < 0.5 * chance  # of half a normal distribution 0.4
    assert np.mean(expected) > np.mean(paid)


def test_advice_that_does_not_pay_is_not_given():
    """By all examples a local model looks better, by each half for the other it does not."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(40), 20)
    fold = np.arange(len(owner)) % 2
    more = np.where(fold == 0, -3.0, 2.9)  # the halves contradict each other
    base = draw.exponential(1.0, len(owner))
    loss = {"global": base, "local": base + more}
    losses = held_out(owner, loss, np.full(len(owner), 16), fold)
    found = decide(losses, None, np.full(40, 20))
    assert found.gain["local"].mean() > 0 and (best(found.score) == "global").all()
    assert (found.paid == 0).all()


def test_the_cut_is_for_the_size_and_leaves_the_others_certain():
    """Most clients have many examples, and so hardly any noise; one of three is wild."""
    for wild in (30.0, 1e4):
        size = np.array([3] + [500] * 95)
        owner = np.repeat(np.arange(len(size)), size)
        every = size[owner]
        held = -(-every // 5)
        draw = np.random.default_rng(0)

        def losses(trained, wild=0.0, owner=owner, draw=draw):
            own = 1.05 + 0.3 * draw.normal(size=len(owner)) + wild * (owner == 0)
            return held_out(owner, {"global": np.ones(len(owner)), "local": own}, trained)

        found = decide(losses(every - held), losses(every - 2 * held, wild), size)
        assert found.gain["local"][0] < 0.7 and (best(found.score) == "global").all()
        assert found.deviation["local"][1:].max() < 0.05


def test_differences_that_are_chance_are_rarely_believed():
    believed = [
        decide(
            *drawn(seed, lambda draw, n: 0.0, examples=10)[:1], None, np.full(80, 10), "global"
        ).trust
        for seed in range(60)
    ]
    assert np.mean([bool(trust) for trust in believed]) < 0.1


def test_what_is_expected_follows_the_client_even_where_one_answer_suits_all():
    losses, gains, size = drawn(3, lambda draw, n: draw.uniform(1.0, 9.0, n))
    found = decide(losses, None, size)
    assert found.trust is None and (best(found.score) == "local").all()
    assert np.corrcoef(found.gain["local"], gains)[0, 1] > 0.9
    assert (found.gain["local"] > 2 * found.deviation["local"]).mean() > 0.8  # it is clear


def uneven(seed, fit_to, spoilt=False):
    """Clients from 2 to 300 examples; a local model that loses ``fit_to(n)`` more than the global.

    Fitted on four fifths of them, and on three fifths.
    """
    draw = np.random.default_rng(seed)
    size = np.concatenate([np.repeat([2, 3], 4), draw.integers(5, 40, 45), [100, 150, 200, 300]])
    owner = np.repeat(np.arange(len(size)), size)
    every = size[owner]
    held = -(-every // 5)
    most = every - held
    some = np.where(every > 2, np.maximum(every - 2 * held, 1), most)
    base = draw.exponential(1.0, len(owner))

    def losses(trained):
        more = fit_to(trained) * draw.exponential(1.0, len(owner))
        return held_out(owner, {"global": base, "local": base + more}, trained)

    found, fewer = losses(most), losses(some)
    if spoilt:  # a model of one example that is wild about another
        fewer.loss["local"][np.flatnonzero(size[owner] == 3)[0]] += 600
    return found, fewer, size


def test_one_wild_model_of_few_examples_does_not_promise_gains():
    """Everybody is alike: a model of one's own loses 6/n more, and nothing is to be gained."""
    for seed in range(10):
        sane, wild = (decide(*uneven(seed, lambda n: 6 / n, spoilt)) for spoilt in (False, True))
        for found in (sane, wild):
            assert (best(found.score) == "global").all()
            known = np.isfinite(found.observed["local"])
            gap = found.gain["local"][known].mean() - found.observed["local"][known].mean()
            assert gap < 0.5 * abs(found.observed["local"][known].mean())


def test_sizes_decide_where_that_pays():
    """A local model is better for who has 30 examples or more, and clients are told so."""
    losses, fewer, size = uneven(0, lambda n: np.where(n < 20, 2.0, -2.0))
    found = decide(losses, fewer, size)
    assert found.trust is not None
    local = best(found.score) == "local"
    assert local[size > 35].all() and not local[size < 12].any()


def test_what_pays_at_one_time_only_is_not_advised():
    """A local model was better in one period, and worse in the other."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(40), 20)
    fold = np.tile(np.repeat([3, 4], 10), 40)
    base = draw.exponential(1.0, len(owner))
    for early, answer in ((-0.3, "global"), (0.3, "local")):
        own = base - np.where(fold == 4, 0.5, early) + 0.1 * draw.normal(size=len(owner))
        losses = held_out(owner, {"global": base, "local": own}, np.full(len(owner), 16), fold)
        found = decide(losses, None, np.full(40, 20))
        assert (best(found.score) == answer).all()


def test_examples_of_a_fold_are_not_independent():
    """Gains that only periods explain are as uncertain as two examples, not as twenty."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(200), 20)
    fold = np.tile(np.repeat([3, 4], 10), 200)
    base = np.ones(len(owner))
    shared = draw.normal(size=(200, 2))[owner, fold - 3]
    losses = held_out(owner, {"global": base, "local": base - shared}, np.full(4000, 16), fold)
    found = decide(losses, None, np.full(200, 20))
    assert np.abs(found.gain["local"]).max() < 0.6  # the means of periods scatter by 0.7


def test_few_clients_that_gain_much_and_differently_are_advised():
    """Ten clients that scatter widely, and whose examples leave no doubt."""
    told = []
    for seed in range(10):
        losses, _, size = drawn(
            seed, lambda draw, n: np.where(np.arange(n) == 0, 30.0, 0.3), clients=10, examples=200
        )
        told.append((best(decide(losses, None, size).score) == "local").all())
    assert np.mean(told) >= 0.9


def test_clear_advice_is_right():
    """Three candidates whose gains differ by client, more or less, some with long tails."""
    clear, right, all_right = [], [], []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        clients, spread = 60, (0.0, 0.2, 0.5, 2.0)[seed % 4]
        size = np.maximum(np.exp(draw.normal(3.0, 1.2, clients)).astype(int), 2)
        owner = np.repeat(np.arange(clients), size)
        gains = {
            name: spread * draw.normal(size=clients) + mean
            for name, mean in (("cluster", -0.1), ("local", 0.0), ("λ = 1", 0.1))
        }
        base = draw.exponential(1.0, len(owner))
        tail = 1.0 if seed % 8 < 4 else draw.exponential(1.0, len(owner))
        noise = {name: tail * draw.normal(size=len(owner)) for name in gains}
        loss = {"global": base} | {n: base - g[owner] + noise[n] for n, g in gains.items()}
        losses = held_out(owner, loss, size[owner])
        choice = best(decide(losses, None, size).score)
        truth = np.stack([np.zeros(clients), *gains.values()])
        taken = truth[[list(loss).index(name) for name in choice], np.arange(clients)]
        clear.append(is_clear(losses, None, size, choice, {n: n for n in loss}))
        right.append((taken == truth.max(axis=0))[clear[-1]])
        all_right.append(taken == truth.max(axis=0))
    assert np.concatenate(clear).mean() > 0.2  # it is said often enough to be of use
    assert np.concatenate(right).mean() > 0.95
    assert np.concatenate(all_right).mean() < 0.8  # without it, advice is right less often


def test_what_is_barred_is_not_chosen():
    losses, _, size = drawn(1, lambda draw, n: 0.5)
    found = decide(losses, None, size, barred=("local",))
    assert (best(found.score) == "global").all() and found.gain["local"].mean() > 0.3
    assert np.nanmean(found.paid) == 0


def test_where_nothing_is_gained_little_is_promised():
    """The best of six candidates that are as good as the global model only looks better."""
    promised = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        size = draw.integers(4, 30, 30)
        owner = np.repeat(np.arange(30), size)
        base = draw.exponential(1.0, len(owner))
        loss = {f"λ = {k}": base + 0.5 * draw.normal(size=len(owner)) for k in range(6)}
        found = decide(held_out(owner, {"global": base, **loss}, size[owner]), None, size)
        promised.append(np.nanmean(found.worth))
    assert np.mean(promised) < 0.01


def test_what_cannot_be_tried_out_is_not_advised():
    """No client has examples in both halves, as where half of them leave and others come later."""
    owner, fold = np.repeat(np.arange(40), 10), np.repeat(np.arange(40) % 2, 10)
    for seed in range(20):
        base = np.random.default_rng(seed).exponential(1.0, 400)
        loss = {"local": base - 0.1 * np.random.default_rng(100 + seed).random(400)}
        all_losses = held_out(owner, {"global": base, **loss}, np.full(400, 30), fold)
        found = decide(all_losses, None, np.full(40, 40))
        assert set(best(found.score)) == {"global"}
