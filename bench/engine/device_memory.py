"""A device's memory as a run finds it: weights loaded, activations recorded, KV started."""

from __future__ import annotations

from functools import partial

import torch

from backends.base import Backend, DeviceName, KvHeads, KvLayout
from bench.config import Config
from bench.engine.activations import Activations, record
from bench.engine.allocator_views import AllocatorViews
from bench.engine.memory_plan import (
    RunStep,
    check_weights_fit,
    load_weights,
    plan_gpu_memory,
    plan_host_memory,
)
from bench.engine.real_model import make_decoder, run_without_memory, warm_up
from bench.engine.scheduler import Limits
from bench.errors import SettingError
from bench.metrics.allocator import AllocatorProbe
from bench.model.decoder import Decoder
from bench.model.weights import compute_dtypes
from bench.sources.active import Sources
from bench.sources.base import Served


class DeviceMemory(AllocatorViews):
    """The device's memory set up for a run: weights loaded, activations known, KV started.

    On the virtual GPU activations are replayed; elsewhere there is a decoder that makes its own.
    """

    def __init__(
        self,
        config: Config,
        backend: Backend,
        limits: Limits,
        device: str,
        sources: Sources | None = None,
    ) -> None:
        """Starts the backend and `sources`, which take their memory in steps."""
        sources = sources or Sources({})
        self.on_gpu = device != "cpu"
        self.device: DeviceName = "cuda" if self.on_gpu else "cpu"
        super().__init__(AllocatorProbe() if self.on_gpu else None)
        self.decoder: Decoder | None = None
        if self.on_gpu:
            check_card(config)
        check_weights_fit(config, self._usable_bytes(config))
        heads = None
        if device == "virtual":
            self.activations = self._start_modelling(config, backend)
            run_step: RunStep = self.activations.replay
        else:
            dtype, kv_dtype = compute_dtypes(config.weight_dtype, config.kv_dtype)
            heads = KvHeads(config.model.kv_heads, config.model.head_dim, kv_dtype)
            self.decoder = make_decoder(config, dtype, self.device)
            run_step = partial(run_without_memory, self.decoder, self.device)
        self.token_bytes = config.model.kv_bytes_per_token(config.kv_dtype, config.tensor_parallel)
        planned = sources.plan(_served(config, limits, self.token_bytes, run_step))
        usable = self._usable_bytes(config)
        self.plan = (
            plan_gpu_memory(config, run_step, *limits.largest_step, usable, planned)
            if self.on_gpu
            else plan_host_memory(config)
        )
        backend.start(
            KvLayout(
                layers=config.model.layers,
                token_bytes=self.token_bytes,
                max_model_len=config.max_model_len,
                budget_bytes=self.plan.kv_budget_bytes,
                device=self.device,
                heads=heads,
                others=sources.others,
            )
        )
        sources.start(self.plan.headroom_bytes)
        if self.decoder is not None:
            longest_step, _ = limits.largest_step
            warm_up(self.decoder, backend, self.device, config.max_model_len, longest_step)
        self.start()

    def _usable_bytes(self, config: Config) -> int:
        """What PyTorch's allocator has and can still get. On a card libraries and kernels that are
        loaded later take memory of their own, so that this is read again when they were used."""
        if not self.on_gpu:
            return config.gpu.usable_bytes
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved()

    def _start_modelling(self, config: Config, backend: Backend) -> Activations:
        """Records the activations, then loads the weights. Raises SettingError."""
        _check_dtypes(config)
        activations = Activations(
            record(config.model, config.tensor_parallel),
            ages="garbage_collection_threshold" in (backend.alloc_conf + config.alloc_conf),
            driver_calls=lambda: sum(self.driver_calls().values()),
        )
        self.weights = load_weights(config)
        return activations


def _served(config: Config, limits: Limits, token_bytes: int, run_step: RunStep) -> Served:
    _, rows = limits.largest_step
    model, gpus = config.model, config.tensor_parallel
    return Served(model, gpus, token_bytes, rows, config.seed, run_step)


def check_card(config: Config) -> None:
    """Raises SettingError where the card is another than `gpu`."""
    found = torch.cuda.get_device_name(0)
    if found != config.gpu.device_name:
        raise SettingError(
            f"the card is {found!r} and gpu={config.gpu.name} is {config.gpu.device_name!r}, whose "
            "modelled times would stand beside measured ones: choose the gpu= that is there, set "
            "gpu.device_name to it to do so all the same, or use device=virtual."
        )


def _check_dtypes(config: Config) -> None:
    """Raises SettingError for what is not modelled: GPUs serve at 16 bits or less."""
    for setting in ("weight_dtype", "kv_dtype"):
        if getattr(config, setting) == "fp32":
            raise SettingError(
                f"{setting}=fp32 is for device=cpu and device=cuda, which compute: choose fp16, "
                "bf16 or fp8."
            )
