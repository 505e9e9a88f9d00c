"""Ready models against definitions and against the library's own convolution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sartor
from sartor.errors import ConfigError
from sartor.models import Model, count_parameters, in_precision, layers

KEY = jax.random.key(0)


def test_the_cnn_is_the_papers_layer_table():
    params = sartor.models.cnn().init(KEY)
    sizes = {name: count_parameters(layer) for name, layer in params.items()}
    assert sizes == {"conv_1": 320, "conv_2": 18_496, "dense_1": 1_179_776, "dense_2": 7_998}
    assert count_parameters(params) == 1_206_590
    x = jnp.zeros((2, 28, 28, 1))
    hidden = layers.conv3x3(params["conv_1"]["w"], x)
    assert hidden.shape == (2, 26, 26, 32)
    hidden = layers.conv3x3(params["conv_2"]["w"], hidden)
    assert hidden.shape == (2, 24, 24, 64)
    assert layers.max_pool_in_blocks(layers.in_blocks(hidden)).shape == (2, 12, 12, 64)
    assert params["dense_1"]["w"].shape == (9216, 128)


def reference_trunk(first, second, x):
    """The same two layers by the library's convolution and window reduction."""
    for layer in (first, second):
        x = jax.lax.conv_general_dilated(
            x, layer["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@pytest.mark.parametrize("form", [layers._conv_conv_pool, layers._conv_conv_pool_in_blocks])
def test_both_forms_of_the_convolutions_equal_the_reference(form):
    params = sartor.models.cnn().init(KEY)
    params = jax.tree.map(lambda a: a + 0.05 if a.ndim == 1 else a, params)
    x = jax.random.uniform(jax.random.key(1), (3, 28, 28, 1))
    cotangent = jax.random.normal(jax.random.key(2), (3, 12, 12, 64))

    def value_and_gradient(f, x):
        out, pull = jax.vjp(f, params["conv_1"], params["conv_2"], x)
        return out, pull(cotangent)

    def check(ours, reference):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-4), ours, reference)

    check(value_and_gradient(form, x), value_and_gradient(reference_trunk, x))
    # A blank background makes many numbers equal. Which of them wins a pool may depend on the
    # last bit, so that the gradient in x may move by a pixel; that in the weights may not.
    blank = x.at[:, :12].set(1.0)
    ours, reference = (value_and_gradient(f, blank) for f in (form, reference_trunk))
    check((ours[0], ours[1][:2]), (reference[0], reference[1][:2]))


def test_evaluation_mode_has_no_dropout_and_training_mode_has():
    model = sartor.models.cnn()
    params, x = model.init(KEY), jnp.ones((2, 28, 28)) / 3
    assert jnp.array_equal(model.apply(params, x, None), model.apply(params, x, None))
    one, two = (model.apply(params, x, jax.random.key(k)) for k in (1, 2))
    assert not jnp.array_equal(one, two)


@pytest.mark.parametrize("keep", [0.25, 0.5, 0.75])
def test_dropout_keeps_the_expectation_and_the_share(keep):
    x = jnp.ones((101, 1003))
    dropped = layers.dropout(x, keep, KEY)
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / keep)}
    assert abs(float(dropped.mean()) - 1) < 0.02


def test_dropout_is_the_same_alone_and_beside_others():
    keys = jax.random.split(KEY, 5)
    x = jnp.ones((3, 10))
    together = jax.vmap(lambda k: layers.dropout(x, 0.5, k))(keys)
    alone = jnp.stack([layers.dropout(x, 0.5, k) for k in keys])
    assert jnp.array_equal(together, alone)


def test_smoothing_is_the_mixture_of_targets():
    smooth, plain = (sartor.models.logistic(3, 4, smoothing=s) for s in (0.1, 0.0))
    params, x, y = plain.init(KEY), jax.random.normal(KEY, (5, 3)), jnp.array([0, 1, 2, 3, 0])
    target = 0.9 * jax.nn.one_hot(y, 4) + 0.1 / 4
    expected = -(target * plain.apply(params, x, None)).sum(axis=1)
    np.testing.assert_allclose(smooth.loss(params, x, y), expected, rtol=1e-6)
    np.testing.assert_allclose(smooth.score(params, x, y)[0], plain.loss(params, x, y), rtol=1e-6)


def test_density_model_has_the_loss_of_its_distribution():
    model = sartor.models.categorical(3)
    params = {"logits": jnp.log(jnp.array([0.5, 0.25, 0.25]))}
    loss, _ = model.score(params, None, jnp.array([0, 2]))
    np.testing.assert_allclose(loss, np.log([2, 4]), rtol=1e-6)


def test_linear_regression_has_squared_loss():
    model = sartor.models.linear(2)
    params = {"dense_1": {"w": jnp.array([[1.0], [2.0]]), "b": jnp.array([3.0])}}
    loss = model.loss(params, jnp.array([[1.0, 1.0]]), jnp.array([4.0]))
    assert loss.tolist() == [4.0]


@pytest.mark.parametrize("classes, form", [(2, "classification"), (5, "density")])
def test_the_gain_range_holds_the_gain_of_every_label(classes, form):
    """Its ends are the gains of the worst and the best label."""
    model = Model(lambda key: {}, lambda params, x, key: x, kind=form, classes=classes)
    shape = (classes,) if form == "density" else (6, classes)
    before, after = (jax.nn.log_softmax(jax.random.normal(k, shape)) for k in jax.random.split(KEY))
    every = [
        model.score_of(before, jnp.full(6, y))[0] - model.score_of(after, jnp.full(6, y))[0]
        for y in range(classes)
    ]
    least, most = model.gain_range(before, after, jnp.zeros(6, int), jnp.zeros(2))
    np.testing.assert_allclose(least, np.min(every, axis=0), rtol=1e-6)
    np.testing.assert_allclose(most, np.max(every, axis=0), rtol=1e-6)
    never = jnp.log(jnp.array([[0.5, 0.5, 0.0]]))  # both models exclude a label: no difference
    assert [
        float(end[0]) for end in model.gain_range(never, never, jnp.zeros(1), jnp.zeros(2))
    ] == [
        0.0,
        0.0,
    ]


def test_the_gain_range_of_several_outputs_adds_up():
    model = sartor.models.linear(2, outputs=3)
    draw = np.random.default_rng(0)
    before, after = draw.normal(size=(2, 4, 3))
    labels = np.array([[-1.0, -2.0, -3.0], [1.0, 2.0, 0.0]])
    ys = labels[0] + draw.random((500, 4, 3)) * (labels[1] - labels[0])
    gain = ((ys - before) ** 2 - (ys - after) ** 2).sum(axis=2)
    least, most = model.gain_range(before, after, jnp.zeros((4, 3)), jnp.asarray(labels))
    assert (least <= gain.min(axis=0) + 1e-5).all() and (gain.max(axis=0) <= most + 1e-5).all()
    np.testing.assert_allclose(least + most, 2 * gain.mean(axis=0), atol=0.5)  # it is linear


@given(st.sampled_from([2, 5]), st.sampled_from([1, 3]), st.integers(0, 99), st.floats(0, 100))
def test_probabilities_sum_to_one(classes, features, seed, scale):
    model = sartor.models.mlp(features, (7,), classes=classes)
    params = jax.tree.map(lambda a: np.float32(scale) * a, model.init(jax.random.key(seed)))
    x = np.random.default_rng(seed).normal(size=(6, features)).astype(np.float32)
    out = model.apply(params, x, None)
    np.testing.assert_allclose(jnp.exp(out).sum(axis=1), 1, rtol=1e-5)


def test_images_of_bytes_are_pixels_and_tables_of_bytes_are_numbers():
    image, table = sartor.models.logistic((1, 2), 3), sartor.models.logistic(2, 3)
    params = image.init(KEY)
    pixels = image.apply(params, jnp.array([[[255, 51]]], jnp.uint8), None)
    np.testing.assert_allclose(
        pixels, image.apply(params, jnp.array([[[1.0, 0.2]]]), None), rtol=1e-5
    )
    numbers = table.apply(params, jnp.array([[3, 1]], jnp.uint8), None)
    np.testing.assert_allclose(numbers, table.apply(params, jnp.array([[3.0, 1.0]]), None))


def test_bf16_computes_near_f32_with_f32_parameters():
    model = sartor.models.mlp(8, (16,), classes=4)
    params, x = model.init(KEY), jax.random.normal(KEY, (6, 8))
    low = in_precision(model, "bf16")
    assert low is in_precision(model, "bf16")  # compiled programs are found again
    np.testing.assert_allclose(low.apply(params, x, None), model.apply(params, x, None), atol=0.05)
    gradient = jax.grad(lambda p: low.loss(p, x, jnp.zeros(6, int)).mean())(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}


def test_the_same_arguments_give_the_same_model():
    assert sartor.models.logistic(3, 4) is sartor.models.logistic(3, 4)
    assert sartor.models.logistic(3, 4) != sartor.models.logistic(3, 5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sartor.models.logistic(0, 3), r"features.*at least 1.*got 0"),
        (lambda: sartor.models.categorical(2.5), r"symbols.*whole number"),
        (lambda: sartor.models.mlp(3), r"either classes.*or outputs"),
        (lambda: sartor.models.cnn(smoothing=1.0), r"smoothing must be a number in \[0, 1\)"),
        (lambda: Model(lambda k: 0, lambda p, x, k: x), r"needs classes"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"apply": lambda p, x, k: None}, r"apply gave the shape None .* must be \(2, 3\)"),
        ({"apply": lambda p, x, k: 1.0}, r"apply gave the shape None"),
        ({"apply": lambda p, x, k: p["w"]}, r"apply.* raised KeyError: 'w'; correct the function"),
        ({"training_loss": lambda p, y: p.mean()}, r"training_loss gave the shape \(\)"),
        ({"training_loss": lambda p, y: p["w"]}, r"training_loss.* raised TypeError"),
    ],
)
def test_functions_that_fail_or_give_something_else(changes, words):
    def apply(params, x, key):
        return jnp.full((len(x), 3), -np.log(3.0))

    data = sartor.data.from_arrays(np.eye(3), [0, 1, 2], ["a", "b", "a"])
    model = Model(**{"init": lambda key: {}, "apply": apply, "classes": 3, **changes})
    with pytest.raises(ConfigError, match=words):
        sartor.models.check(model, data)
