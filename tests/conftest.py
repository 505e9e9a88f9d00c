"""Settings for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest

# Most of the time goes to compiling, often the same programs: they are kept from test to test, for
# the programs that tests start too, and until `make clean` from run to run.
CACHE = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.05,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
for name, value in CACHE.items():
    os.environ[name.upper()] = str(value)
    jax.config.update(name, value)

# Compilation makes the first example slow, which says nothing about the code.
hypothesis.settings.register_profile("sartor", deadline=None, derandomize=True, max_examples=20)
hypothesis.settings.register_profile("soak", deadline=None, print_blob=True, max_examples=500)
hypothesis.settings.load_profile("sartor")


SLOW = (
    "test_mapper", "test_mapper_rounds", "test_hypcluster", "test_hypcluster_limits",
    "test_synthetic", "test_combinations", "test_on_demand", "test_regret", "test_emnist_run",
    "test_dapper", "test_dapper_draws", "test_fedavg", "test_devices", "test_one_client",
    "test_examples", "test_personal", "test_readme", "test_advise", "test_resume",
    "test_discrepancy", "test_vectorize", "test_models",
)  # fmt: skip
"""Modules that take long. Workers take whole modules, and should not end with one of these."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow modules first."""
    items.sort(key=lambda item: SLOW.index(n) if (n := item.path.stem) in SLOW else len(SLOW))


@pytest.fixture(autouse=True, scope="session")
def ctrl_c() -> None:
    """Programs in the background ignore Ctrl-C, and so would the programs that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_emnist() -> Path:
    """Real federated EMNIST in TFF's layout, where it lies beside the repository."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data" / "fed_emnist"
    if not path.is_dir():
        pytest.skip("needs federated EMNIST in ../shared/data/fed_emnist")
    return path


COMPILING = {
    "test_adapters", "test_advise", "test_advised", "test_agnostic", "test_apfl", "test_clusters",
    "test_combinations", "test_cost", "test_dapper", "test_dapper_draws", "test_discrepancy",
    "test_emnist_run", "test_examples", "test_fedavg", "test_fedper", "test_hypcluster",
    "test_mapper", "test_mapper_rounds", "test_models", "test_on_demand", "test_one_client",
    "test_personal", "test_readme", "test_regret", "test_scaffold", "test_synthetic",
    "test_vectorize",
}  # fmt: skip
"""Modules of many small programs, which take longer to compile well than to run."""


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile without most optimizations where speed does not matter."""
    before = jax.config.values["jax_disable_most_optimizations"]
    if before or request.path.stem not in COMPILING:
        yield
        return
    # Operations that were compiled otherwise have other last bits, and are kept by shape.
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
