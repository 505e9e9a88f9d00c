"""Leaves of a pytree by name, for files, for freezing layers and for messages."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr

Tree = Any
"""Any pytree of arrays."""


def flatten(tree: Tree) -> dict[str, Any]:
    """Name every leaf of a tree by its path.

    >>> flatten({"dense_1": {"w": 1, "b": 2}})
    {'dense_1/b': 2, 'dense_1/w': 1}
    """
    leaves, _ = jax.tree.flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def form(tree: Tree) -> Tree:
    """Type and shape of every leaf, as a message shows them.

    >>> import numpy as np
    >>> form({"w": np.zeros((2, 3), np.float32)})
    {'w': 'float32[2, 3]'}
    """
    return jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", tree)


def unflatten(like: Tree, leaves: Mapping[str, Any]) -> Tree:
    """A tree of the structure of ``like`` with leaves given by name.

    >>> unflatten({"w": 0, "b": 0}, {"w": 1, "b": 2})
    {'b': 2, 'w': 1}
    """
    return jax.tree.unflatten(jax.tree.structure(like), [leaves[name] for name in flatten(like)])


def array_digest(tree: Tree) -> str:
    """A hash of all numbers in a tree.

    >>> array_digest({"a": [1.0, 2.0]}) == array_digest({"a": [1.0, 2.5]})
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(tree):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def traced_hash(function: Callable[..., Any], *arguments: Any) -> str:
    """A hash of what a function computes on arguments of these shapes, the same in any process.

    >>> traced_hash(lambda x: 2 * x, 1.0) == traced_hash(lambda y: 2 * y, 1.0)
    True
    >>> traced_hash(lambda x: 2 * x, 1.0) == traced_hash(lambda x: 3 * x, 1.0)
    False
    """
    traced = jax.make_jaxpr(function)(*arguments)
    # On a terminal str() would have colours; and addresses differ from process to process.
    text = re.sub(r"0x[0-9a-f]+", "", traced.pretty_print(use_color=False))
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for constant in _constants(traced):  # the text has only their shapes
        if jnp.issubdtype(constant.dtype, jax.dtypes.prng_key):
            constant = jax.random.key_data(constant)
        digest.update(np.ascontiguousarray(constant).tobytes())
    return digest.hexdigest()


def _constants(traced: Any) -> Iterator[Any]:
    """The arrays that a traced function has captured, and those of the functions inside it."""
    yield from getattr(traced, "consts", ())
    for equation in getattr(traced, "jaxpr", traced).eqns:
        for inside in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")
        ):
            if hasattr(inside, "eqns"):
                yield from _constants(inside)
