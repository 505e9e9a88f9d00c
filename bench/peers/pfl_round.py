"""FedAvg rounds with pfl-research (PyTorch), through its own simulation API.

Either in one process with several threads, or, as its guide to fast simulations proposes, with
the cohort shared out over several processes that have one thread (or few) each.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import get_default_device
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional

import common


class Network(nn.Module):
    """The paper's EMNIST network, with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(64 * 12 * 12, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, common.CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.train()
        return functional.cross_entropy(self(images), labels)

    @torch.no_grad()
    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Weighted]:
        self.eval()
        total = functional.cross_entropy(self(images), labels, reduction="sum")
        return {"loss": Weighted(total.item(), len(labels))}


class Clock(TrainingProcessCallback):
    """Notes the time when training begins and after each round."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.times.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.times.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    common.add_workload_arguments(parser)
    parser.add_argument("--processes", type=common.positive, default=1, help="worker processes")
    options = parser.parse_args()
    workload, processes = common.workload_of(options), options.processes
    if workload.threads % processes:
        raise SystemExit(f"--threads {workload.threads} cannot be shared by {processes} processes")
    if processes > 1 and "PFL_WORKER_RANK" not in os.environ:
        run_workers(processes)
    else:
        measure(workload, processes)


def run_workers(processes: int) -> None:
    """Start this script once for each worker; the first worker's output is ours."""
    addresses = ",".join(f"localhost:{port}" for port in free_ports(processes))
    workers = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, "PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)},
            stdout=None if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(processes)
    ]
    while any(worker.poll() is None for worker in workers):
        if any(worker.poll() for worker in workers):  # the others would wait for it for ever
            for worker in workers:
                worker.terminate()
        time.sleep(0.1)
    raise SystemExit(max(abs(worker.returncode) for worker in workers))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def measure(workload: common.Workload, processes: int) -> None:
    """Run the rounds, as the only process or as one of several workers."""
    threads = workload.threads // processes
    common.limit_threads(threads, skip=threads * int(os.environ.get("PFL_WORKER_RANK", 0)))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - pfl draws its own seeds from numpy's global generator

    images, labels = common.random_clients(workload)
    # Tensors are made once, on the device, and a pfl dataset caches its batches: no copies inside
    # a round.
    device = get_default_device()
    torch.set_float32_matmul_precision("high")  # as JAX multiplies float32 on a GPU
    users = [
        PyTorchTensorDataset(
            (torch.from_numpy(x)[:, None].to(device), torch.from_numpy(y).long().to(device))
        )
        for x, y in zip(images, labels, strict=True)
    ]
    data = FederatedDataset(
        users.__getitem__, get_user_sampler("minimize_reuse", range(workload.clients))
    )

    network = Network().to(device)
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(
            network.parameters(), lr=common.SERVER_STEP_SIZE, momentum=common.SERVER_MOMENTUM
        ),
    )
    total = workload.warmup + workload.rounds
    clock = Clock()
    before, first = mean_loss(network, images, labels), flat(network)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=total,
            evaluation_frequency=total,  # only before round 0, which is a warm-up round
            train_cohort_size=workload.clients,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=common.CLIENT_STEP_SIZE,
            local_batch_size=workload.batch,
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    common.report(
        f"pfl, {processes} x {threads} threads, {device.type}",
        {"pfl": version("pfl"), "torch": torch.__version__},
        np.diff(clock.times)[workload.warmup :].tolist(),
        parameters=sum(p.numel() for p in network.parameters()),
        loss=(before, mean_loss(network, images, labels)),
        moved=float(torch.linalg.vector_norm(flat(network) - first)),
    )


def flat(network: Network) -> torch.Tensor:
    """All parameters in one vector of their own."""
    return torch.cat([p.detach().ravel() for p in network.parameters()])


@torch.no_grad()
def mean_loss(network: Network, images: np.ndarray, labels: np.ndarray) -> float:
    """The loss on all training examples, without dropout."""
    network.eval()
    device = get_default_device()
    x = torch.from_numpy(images).reshape(-1, 1, 28, 28).to(device)
    y = torch.from_numpy(labels).ravel().to(device)
    losses = [
        functional.cross_entropy(network(x[i : i + 200]), y[i : i + 200].long(), reduction="sum")
        for i in range(0, len(y), 200)
    ]
    return float(sum(losses)) / len(y)


if __name__ == "__main__":
    main()
