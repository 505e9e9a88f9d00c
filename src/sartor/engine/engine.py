"""How work meets the machine: lanes, devices, precision and memory."""

import dataclasses
from typing import Annotated, Any, Literal

import jax
import numpy as np

from sartor.caching import made_once
from sartor.checking import Count, Range, check_fields, machine_memory
from sartor.data import ClientData
from sartor.errors import ConfigError
from sartor.models import Model, Shapes, column_shapes, example_shapes


@dataclasses.dataclass(frozen=True)
class Engine:
    """How clients are run. Results do not depend on it beyond rounding; speed and memory do.

    Attributes:
        lanes: clients trained side by side on one device; chosen from the model and the device's
            memory if not given.
        devices: how many local devices to spread the lanes over; all of them if not given.
        precision: ``"f32"``, or ``"bf16"`` for arithmetic in bfloat16 with parameters in float32.
        resident: whether the data lives on the device (``True``) or is streamed there as rounds
            need it (``False``); resident if it fits, when not given.
        memory: bytes of device memory to plan with; asked from the device if not given.

    >>> Engine(lanes=4).lanes
    4
    """

    lanes: Count | None = None
    devices: Count | None = None
    precision: Literal["f32", "bf16"] = "f32"
    resident: bool | None = None
    memory: Annotated[int, Range(1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def local_devices(self) -> list[jax.Device]:
        """The devices in use."""
        available: list[jax.Device] = jax.local_devices()
        wanted = self.devices or len(available)
        if wanted > len(available):
            raise ConfigError(
                f"engine.devices is {wanted}, but this machine has {len(available)} "
                f"({available[0].platform}); leave it out to use all"
            )
        return available[:wanted]

    def budget(self) -> int:
        """Bytes of memory on one device."""
        if self.memory is not None:
            return self.memory
        stats = self.local_devices()[0].memory_stats() or {}
        return int(stats.get("bytes_limit", machine_memory()))

    def lanes_for(self, model: Model, data: ClientData, batch: int, jobs: int) -> int:
        """Lanes on one device for jobs that step through batches of this model and data."""
        wanted = -(-jobs // len(self.local_devices()))  # more lanes than jobs would idle
        if self.lanes is not None:
            return min(self.lanes, max(wanted, 1))
        lane = lane_bytes(model, column_shapes(data), batch)
        # What keeps a device busy: on a CPU as much as its cache holds, on a GPU enough to fill
        # its multiprocessors (bench/RESULTS.md).
        on_cpu = self.local_devices()[0].platform == "cpu"
        # With many jobs little is lost where the last ones end, so more lanes pay.
        filling = 2**20 // lane if on_cpu else max(2**29 // lane, 12 if wanted < 48 else 32)
        fitting = self.budget() // 4 // lane
        if fitting < 1:
            raise ConfigError(
                f"one client's training step takes about {lane / 2**20:.0f} MiB, more than a "
                f"quarter of the device's {self.budget() / 2**20:.0f} MiB; make the batch "
                f"(now {batch}) smaller"
            )
        return max(1, min(filling, fitting, wanted, 512))


@made_once(maxsize=256)
def lane_bytes(model: Model, columns: Shapes, batch: int) -> int:
    """About how many bytes one training step of one client takes: parameters and activations."""

    def step(params: Any, x: Any, y: jax.Array) -> Any:
        key = jax.random.key(0)
        return jax.grad(lambda p: model.loss(p, x, y, key).mean())(params)

    params = jax.eval_shape(model.init, jax.random.key(0))
    jaxpr = jax.make_jaxpr(step)(params, *example_shapes(columns, batch))
    results = [v.aval for equation in jaxpr.eqns for v in equation.outvars]
    # Not every intermediate lives at once, but the carry is held several times: near enough.
    return int(
        sum(
            getattr(a, "size", 0) * getattr(a, "dtype", np.dtype(np.int32)).itemsize
            for a in results
        )
    )
