"""Generated handwriting: the shape of EMNIST, and writers whom it helps to know."""

from __future__ import annotations

import numpy as np
import pytest
from data_cases import contents

from sartor.data import PARTS, describe, handwriting
from sartor.data.handwriting import CENSUS, CHARACTERS, HIGH_SCHOOL
from sartor.errors import ConfigError


@pytest.fixture(scope="module")
def data():
    return handwriting(writers=150)


def of_writer(data, k):
    """All images of a writer, in the order in which they were written."""
    rows = np.sort(data.rows[data.bounds[k, 0] : data.bounds[k, 3]])
    return data.columns["x"][rows], data.columns["y"][rows]


def of_writers(data, several):
    return [np.concatenate(a) for a in zip(*(of_writer(data, k) for k in several), strict=True)]


def ink(images):
    return 1 - images.reshape(len(images), -1) / np.float32(255)


def nearest(images, others):
    """For every image, which of the others is the most similar."""
    a, b = ink(images), ink(others)
    return ((b**2).sum(axis=1) - 2 * a @ b.T).argmin(axis=1)


def test_the_shape_of_emnist(data):
    x, y = data.columns["x"], data.columns["y"]
    assert x.dtype == np.uint8 and x.shape == (len(data.rows), 28, 28)
    assert y.dtype == np.int32 and set(y) == set(range(62))
    assert data.ids[0] == "generated-00000" and data.ids[149] == "generated-00149"
    assert len(CHARACTERS) == 62 and CHARACTERS[10] == "A" and CHARACTERS[36] == "a"
    digits = (y < 10).mean()
    assert 0.5 < digits < 0.65


def test_sizes_like_emnist():
    data = handwriting(writers=548)
    train, test = data.sizes("train"), data.sizes("test")
    total = train + test
    assert 37 <= train.min() < 60 and 370 < train.max() <= 410
    assert 195 < total.mean() < 215 and 165 < np.median(total) < 185
    assert test.min() >= 1 and not data.sizes("validation").any()
    np.testing.assert_array_equal(test, np.floor(0.1 * total + 0.5))


def test_all_that_is_printed_says_generated(data):
    domains = describe(data).domains
    assert set(domains) == {CENSUS.domain, HIGH_SCHOOL.domain}
    assert all("generated" in name for name in [*domains, *data.ids])


def test_a_writer_depends_on_nothing_but_its_number_and_the_seed():
    few, many = handwriting(writers=4), handwriting(writers=9)
    assert contents(many.select(few.ids)) == contents(few)
    assert contents(handwriting(writers=4)) == contents(few)
    assert contents(handwriting(writers=4, seed=1)) != contents(few)
    assert contents(handwriting(writers=4, seed=-1)) != contents(few)
    assert few.metadata["domain"].tolist() == many.metadata["domain"][:4].tolist()


def test_an_image_does_not_depend_on_how_many_there_are():
    few, many = handwriting(writers=2, images=50), handwriting(writers=2, images=[600, 70])
    for k in range(2):
        for one, other in zip(of_writer(few, k), of_writer(many, k), strict=True):
            np.testing.assert_array_equal(one, other[:50])
    assert (many.sizes() + many.sizes("test")).tolist() == [600, 70]
    assert len(set(of_writer(many, 0)[1])) == 62


def test_ink_is_on_the_paper_and_inside_the_frame(data):
    x = data.columns["x"]
    assert (x.min(axis=(1, 2)) < 192).all()  # nothing is blank
    assert (x[:, [0, -1]] == 255).all() and (x[:, :, [0, -1]] == 255).all()
    assert 0.02 < ink(x).mean() < 0.08
    assert 0.9 < (x > 127).mean() < 0.98


def test_the_test_part_is_drawn_by_each_writer(data):
    """It is a fair sample: neither the first images nor the last, the same digits and letters."""
    where = []
    for k in range(len(data)):
        written = np.sort(data.rows[data.bounds[k, 0] : data.bounds[k, 3]])
        where.append(np.searchsorted(written, data.part(k, "test")) / len(written))
    assert abs(np.concatenate(where).mean() - 0.5) < 0.03
    assert len({tuple(places) for places in where}) == len(data)
    digits = {
        part: np.mean(np.concatenate([data.client(i, part)["y"] for i in data.ids]) < 10)
        for part in ("train", "test")
    }
    assert abs(digits["train"] - digits["test"]) < 0.04


@pytest.mark.parametrize(
    ("images", "test", "held"), [(2, 0.1, 1), (2, 0.9, 1), (4, 0.1, 1), (40, 0.25, 10), (1, 0, 0)]
)
def test_share_of_the_test_part(images, test, held):
    data = handwriting(writers=2, images=images, test=test)
    assert {part: data.sizes(part).tolist() for part in PARTS} == {
        "train": [images - held] * 2,
        "validation": [0, 0],
        "test": [held] * 2,
    }


def test_shares_of_populations():
    domain = handwriting(writers=2000, images=1, test=0).metadata["domain"]
    assert abs((domain == HIGH_SCHOOL.domain).mean() - 0.19) < 0.03
    for second, expected in ((0, CENSUS), (1, HIGH_SCHOOL)):
        domains = handwriting(writers=5, images=2, second=second).metadata["domain"]
        assert set(domains) == {expected.domain}


def test_writers_differ_more_from_each_other_than_from_themselves():
    """The most similar image of the same digit is far more often by the same writer than chance."""
    data = handwriting(writers=20, images=130)
    x, y = of_writers(data, range(20))
    writer = np.repeat(np.arange(20), 130)
    for digit in range(10):
        some = y == digit
        pixels = ink(x[some])
        distance = ((pixels[:, None] - pixels) ** 2).sum(axis=-1)
        np.fill_diagonal(distance, np.inf)
        same = writer[some][distance.argmin(axis=1)] == writer[some]
        assert same.mean() > 4 / 20


def test_who_knows_the_writer_reads_better():
    """Digits and letters are read by the most similar of some images: the writer's or another's."""
    data = handwriting(writers=20, images=1000)
    own, others = [], []
    for k in range(len(data)):
        (x, y), (x2, y2) = of_writer(data, k), of_writer(data, (k + 1) % len(data))
        own.append((y[nearest(x[500:], x[:500])] == y[500:]).mean())
        others.append((y2[nearest(x[500:], x2[:500])] == y[500:]).mean())
    assert np.mean(own) > np.mean(others) + 0.15
    assert 0.6 < np.mean(own) < 0.97


def test_who_knows_the_population_reads_better():
    """With images of other writers: those of the same population are the better to learn from."""
    census, school = (handwriting(writers=24, images=150, second=share) for share in (0, 1))
    for mine, theirs in ((census, school), (school, census)):
        x, y = of_writers(mine, range(12, 24))
        same, other = (
            (labels[nearest(x, images)] == y).mean()
            for images, labels in (of_writers(mine, range(12)), of_writers(theirs, range(12)))
        )
        assert same > other + 0.05


@pytest.mark.parametrize(
    ("argument", "value", "remedy"),
    [
        ("writers", 0, "at least 1"),
        ("writers", 2.5, "a whole number"),
        ("images", 0, "a whole number of at least 1"),
        ("images", 1, "test=0"),
        ("images", 1.5, "a whole number of at least 1"),
        ("images", [5, 6], "one number, or 3"),
        ("images", [5, 6, 1], "test=0"),
        ("second", 1.1, "from 0 to 1"),
        ("second", float("nan"), "from 0 to 1"),
        ("second", "half", "from 0 to 1"),
        ("test", 1, r"\[0, 1\)"),
        ("test", -0.1, r"\[0, 1\)"),
        ("test", "some", r"\[0, 1\)"),
        ("seed", "a", "a whole number"),
    ],
)
def test_wrong_arguments(argument, value, remedy):
    with pytest.raises(ConfigError, match=f"{argument}( must be|=).*{remedy}"):
        handwriting(**{"writers": 3, argument: value})
