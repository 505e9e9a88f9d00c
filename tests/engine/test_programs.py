"""What jobs do, against plain numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from engine_cases import MODEL, as_vector, columns_of, descend, examples, plan_of, regression

from sartor.engine import Own
from sartor.engine.job import Ask, Batch, Held, Job
from sartor.engine.lanes import fold
from sartor.engine.programs import (
    Recipe,
    answers,
    examiner,
    personal,
    recorded,
    single_step,
    trainer,
)

DATA = regression()
START = MODEL.init(jax.random.key(1))


def loss(params, batch, job):
    return batch.mean(MODEL.loss(params, batch.x, batch.y, batch.key))


def results(program, batch, epochs=1, **changes):
    plan, jobs = plan_of(DATA, lanes=2, batch=batch, epochs=epochs)
    jobs = jobs._replace(**changes)
    keeping = program._replace(
        end=lambda carry, job: (e := program.end(carry, job))._replace(keep=e.upload)
    )
    _, (record, kept, _) = fold(keeping, plan, columns_of(DATA), jobs, jnp.ones(4), batch)
    return record, [jax.tree.map(lambda a, k=k: a[k], kept) for k in range(4)]


def test_a_trainer_takes_gradient_steps():
    program = trainer(loss, lambda job: optax.sgd(0.1), lambda job: START)
    record, trained = results(program, batch=8, epochs=3)
    for k in range(4):
        theta, losses = as_vector(START), []
        x, y = examples(DATA, k)
        for _ in range(3):
            z = np.concatenate([x, np.ones((len(x), 1))], axis=1)
            losses.append(((z @ theta - y) ** 2).mean())
            theta = descend(theta, x, y, 0.1)
        np.testing.assert_allclose(as_vector(trained[k]), theta, atol=1e-5)
        np.testing.assert_allclose(record["loss"][k], np.mean(losses), rtol=1e-4)


def test_a_trainer_may_return_what_its_optimizer_remembers():
    program = trainer(
        loss, lambda job: optax.sgd(0.1, momentum=0.9), lambda job: START,
        final=lambda params, memory: jax.tree.map(jnp.zeros_like, params),
    )  # fmt: skip
    _, trained = results(program, batch=8)
    assert all((as_vector(one) == 0).all() for one in trained)


def test_a_single_step_follows_the_gradient_of_all_examples():
    """Whatever the batches are."""
    program = single_step(loss, 0.1, lambda job: START)
    _, trained = results(program, batch=2)
    for k in range(4):
        theta = descend(as_vector(START), *examples(DATA, k), 0.1)
        np.testing.assert_allclose(as_vector(trained[k]), theta, atol=1e-5)


def test_step_sizes_may_differ_from_job_to_job_and_states_be_gone_on_from():
    central = jax.tree.map(lambda a: a[None], START)
    rates = jnp.array([0.1, 0.2, 0.0, 0.3])
    kept = jax.tree.map(lambda a: jnp.stack([k + a for k in range(4)]), _flat(START))
    program = personal(Recipe(Own(MODEL), None, 1, 8), central)
    _, trained = results(program, 8, values={"learning_rate": rates}, kept=kept)
    for k in range(4):
        theta = descend(as_vector(START) + k, *examples(DATA, k), float(rates[k]))
        np.testing.assert_allclose(as_vector(trained[k]), theta, atol=1e-4)


def _flat(params):
    return {"dense_1/w": params["dense_1"]["w"], "dense_1/b": params["dense_1"]["b"]}


def test_a_trial_records_the_loss_on_what_was_held_out():
    columns = columns_of(DATA)
    score = examiner(Own(MODEL), None, columns, None)
    rows = jnp.zeros(32, jnp.int32).at[:3].set(jnp.array([2, 7, 11]))
    job = Job(0, None, None, held=Held(rows, jnp.int32(3)))
    wanted = MODEL.loss(START, columns["x"][rows[:3]], columns["y"][rows[:3]]).mean()
    second = MODEL.loss(START, columns["x"][rows[1:2]], columns["y"][rows[1:2]]).mean()
    np.testing.assert_allclose(score(job, _flat(START)), [wanted, second], rtol=1e-5)
    program = recorded(personal(Recipe(Own(MODEL), None, 1, 8), None), "held_loss", score)
    ended = program.end((_flat(START), (), jnp.float32(2.0), jnp.float32(2.0)), job)
    np.testing.assert_allclose(ended.record["held_loss"], [wanted, second], rtol=1e-5)
    assert ended.upload == ()  # nothing that was trained is kept


def test_all_hypotheses_are_asked_about_all_examples():
    columns = columns_of(DATA)
    ask = Ask(lambda h, x: h["w"] * x[:, 0], {"w": jnp.array([1.0, -2.0])})
    rows = jnp.arange(17)[::-1]
    said = answers(ask, columns, rows)
    np.testing.assert_allclose(said[0], columns["x"][rows][:, 0], rtol=1e-6)
    np.testing.assert_allclose(said[1], -2 * columns["x"][rows][:, 0], rtol=1e-6)


def test_a_batch_averages_what_counts():
    batch = Batch(None, jnp.zeros(3), jnp.array([True, False, True]))
    assert float(batch.mean(jnp.array([1.0, 100.0, 3.0]))) == 2.0
    nobody = batch._replace(mask=jnp.zeros(3, bool))
    assert float(nobody.mean(jnp.ones(3))) == 0.0
