"""FedAvg rounds with FedJAX, through its own federated averaging and its own EMNIST network.

Either with its `jit` backend (clients one by one, XLA's threads inside a step), or with its
`pmap` backend over as many single-threaded host devices as there are cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax
import jax.core
import jax.extend.core
import numpy as np

# FedJAX 0.0.17 and its Haiku were written for a JAX that had these names.
if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree_util.tree_map
if jax.__version_info__ >= (0, 11):
    jax.core.DropVar = jax.extend.core.DropVar
    jax.core.get_opaque_trace_state = jax.extend.core.get_opaque_trace_state

import fedjax
from fedjax.algorithms import fed_avg
from fedjax.models import emnist

import common


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    common.add_workload_arguments(parser)
    parser.add_argument("--backend", choices=["jit", "pmap"], default="jit")
    options = parser.parse_args()
    workload = common.workload_of(options)
    common.limit_threads(workload.threads)
    if options.backend == "pmap":  # read when JAX starts its backend, at the first computation
        os.environ["XLA_FLAGS"] = (
            f"--xla_force_host_platform_device_count={workload.threads} "
            "--xla_cpu_multi_thread_eigen=false"
        )

    images, labels = common.random_clients(workload)
    clients = {
        f"{k}": fedjax.ClientDataset({"x": images[k, ..., None], "y": labels[k]})
        for k in range(workload.clients)
    }
    model = emnist.create_conv_model(only_digits=False)
    fedjax.set_for_each_client_backend(options.backend)
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(common.CLIENT_STEP_SIZE),
        server_optimizer=fedjax.optimizers.sgd(
            common.SERVER_STEP_SIZE, momentum=common.SERVER_MOMENTUM
        ),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=workload.batch, num_epochs=1, seed=0
        ),
    )
    first = model.init(jax.random.PRNGKey(0))
    state = algorithm.init(first)
    seconds = []
    for keys in round_keys(workload):
        start = time.perf_counter()
        cohort = [(k, data, key) for (k, data), key in zip(clients.items(), keys, strict=True)]
        state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)
        seconds.append(time.perf_counter() - start)

    def mean_loss(params: fedjax.Params) -> float:
        everything = fedjax.padded_batch_client_datasets(clients.values(), batch_size=200)
        return float(fedjax.evaluate_model(model, params, everything)["loss"])

    steps = jax.tree_util.tree_map(lambda a, b: np.sum((a - b) ** 2), first, state.params)
    common.report(
        f"fedjax, {options.backend}, {jax.device_count()} device(s)",
        {"fedjax": version("fedjax"), "jax": jax.__version__},
        seconds[workload.warmup :],
        parameters=sum(leaf.size for leaf in jax.tree_util.tree_leaves(first)),
        loss=(mean_loss(first), mean_loss(state.params)),
        moved=float(np.sqrt(sum(jax.tree_util.tree_leaves(steps)))),
    )


def round_keys(workload: common.Workload) -> list[list[jax.Array]]:
    """A random key for each client in each round, made beforehand."""
    total = workload.warmup + workload.rounds
    keys = jax.random.split(jax.random.PRNGKey(1), total * workload.clients)
    return [list(row) for row in keys.reshape(total, workload.clients, -1)]


if __name__ == "__main__":
    main()
