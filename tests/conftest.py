"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest
from jax._src import compiler

sys.path.insert(0, str(Path(__file__).parent))  # for what all tests share

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
    "test_synthetic", "test_hypcluster_limits", "test_fedavg", "test_on_demand", "test_hypcluster",
    "test_devices", "test_resume", "test_agnostic", "test_regret", "test_combinations",
    "test_mapper_rounds", "test_browser", "test_dapper", "test_mapper", "test_discrepancy",
    "test_fuzz", "test_readme", "test_one_client", "test_examples", "test_vectorize",
    "test_emnist_run",
    "test_dapper_draws", "test_personal", "test_advise", "test_models", "test_disks", "test_kills",
)  # fmt: skip
"""Modules that take long, longest first. Workers take whole modules; a long one last costs time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow modules first, and those that compile in the same way together."""

    def place(item: pytest.Item) -> tuple[int, bool]:
        name = item.path.stem
        return SLOW.index(name) if name in SLOW else len(SLOW), name not in COMPILING

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Collect garbage rarely: what is imported stays, and tracing leaves little behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


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
    "test_fuzz", "test_personal", "test_predicting", "test_readme", "test_regret", "test_scaffold",
    "test_synthetic", "test_vectorize",
}  # fmt: skip
"""Modules of many small programs, which take longer to compile well than to run."""


QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
"""What makes XLA compile small programs four times as fast, besides fewer optimizations."""

ALWAYS_QUICK = jax.config.values["jax_disable_most_optimizations"]


@pytest.fixture(autouse=True, scope="session")
def quick_options() -> None:
    """Add these options where this version of XLA knows them; JAX has no public way to do so."""
    try:
        jax.jit(lambda: 0).lower().compile(QUICK)
    except jax.errors.JaxRuntimeError:
        return
    usual = compiler.get_compile_options

    def options(*args: Any, env_options_overrides: Any = None, **named: Any) -> Any:
        if jax.config.values["jax_disable_most_optimizations"]:
            env_options_overrides = {**QUICK, **(env_options_overrides or {})}
        return usual(*args, env_options_overrides=env_options_overrides, **named)

    compiler.get_compile_options = options


last: dict[str, Path] = {}
"""The module of the test before."""

compiled: list[str] = []
"""An entry for each program that was compiled and may still be kept."""

jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Compile without most optimizations where speed does not matter.

    A fixture would come too late for what several modules share.
    """
    quick = ALWAYS_QUICK or item.path.stem in COMPILING
    changes = quick != jax.config.values["jax_disable_most_optimizations"]
    # Operations that were compiled otherwise have other last bits, and are kept by shape. A program
    # takes some 15 maps of memory, and Linux gives a process 65,530.
    if changes or (len(compiled) > 1000 and item.path != last.get("module")):
        jax.clear_caches()
        compiled.clear()
        jax.config.update("jax_disable_most_optimizations", quick)
    last["module"] = item.path
