"""What an experiment can be told: the schema behind `conf/`, and the checks across settings.

Fixed sections are dataclasses, so that a misspelt key fails by name. Plug-in groups (backend,
workload) are open here: the keyword-only constructor that `_target_` names is their schema.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from bench.costs import CostConstants
from bench.costs.factors import check_factors
from bench.errors import SettingError
from bench.gpu import Gpu
from bench.load.settings import LoadSettings, check_load
from bench.model.config_json import checkpoint_shape
from bench.model.shape import KV_DTYPES, WEIGHT_DTYPES, ModelShape, check_dtype
from bench.serve.settings import ServeSettings, check_serve
from bench.setting_checks import choice
from bench.vllm.settings import VllmSettings, check_vllm

LEAST_TIMELINE_ROWS = 16
ENGINES = ("inrepo", "transformers", "vllm")
DEVICES = ("auto", "virtual", "cuda", "cpu")
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
         "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip


@dataclass
class EngineSettings:
    """Continuous batching (conf/engine/). Null takes what suits the backend or the model."""

    name: str = "inrepo"
    batching: str = "continuous"  # continuous | static
    prefill: str | None = None  # whole | chunked
    token_budget: int | None = None  # tokens a step; prompts a step with whole prefill
    max_num_seqs: int = 256
    max_live_tokens: int | None = None
    admit_whole_prompt: bool = True
    on_oom: str = "queue"  # queue | fail
    empty_cache: str = "never"  # never | between | step
    activation_buckets: bool | None = None
    temperature: float = 0.0  # of sampling, where tokens are computed
    one_at_a_time: bool = False  # each sequence is a forward pass of its own
    cache: str | None = None  # dynamic | static: Hugging Face's, in place of a backend


@dataclass
class DriverSettings:
    """How requests reach the engine, and on which clock (conf/driver/)."""

    name: str = "inprocess"  # inprocess | locust
    clock: str = "virtual"  # virtual | wall


@dataclass
class Config:
    """A whole experiment."""

    backend: Any = MISSING
    workload: Any = MISSING
    model: ModelShape = MISSING
    gpu: Gpu = MISSING
    engine: EngineSettings = field(default_factory=EngineSettings)
    driver: DriverSettings = field(default_factory=DriverSettings)
    costs: CostConstants = MISSING
    sources: Any = field(default_factory=dict)
    load: LoadSettings = field(default_factory=LoadSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    vllm: VllmSettings = field(default_factory=VllmSettings)
    name: str | None = None
    seed: int = 0
    repeats: int = 1
    sensitivity: bool = False
    cost_factors: dict[str, float] = field(default_factory=dict)
    device: str = "auto"
    out: str | None = None
    kv_dtype: str = "fp16"
    weight_dtype: str = "fp16"
    tensor_parallel: int = MISSING
    max_model_len: int = MISSING
    utilization: float = 0.9
    kv_budget: str | None = None
    alloc_conf: str = ""
    time_scale: float = 1.0
    stop_after_s: float | None = None
    sample_interval_s: float = 5.0
    timeline_rows: int | None = None
    flush_s: float = 4.0
    memory_snapshot: bool = False
    dashboard: bool = False
    jobs: int | None = None


def register() -> None:
    """Tells Hydra of the schema that conf/config.yaml starts from."""
    ConfigStore.instance().store(name="schema", node=Config)


def parse_bytes(setting: str, value: str) -> int:
    """Bytes of "12GiB", "512 MiB" or a plain number. Raises SettingError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value)
    if match and match[2].upper() in UNITS:
        nbytes = int(float(match[1]) * UNITS[match[2].upper()])
        if nbytes > 0:
            return nbytes
    raise SettingError(
        f"{setting}={value} is not an amount of memory: give a positive number with a unit, "
        "such as 12GiB or 512MiB."
    )


def check(config: Config) -> None:
    """Raises SettingError for the first setting out of range."""
    choice("device", config.device, DEVICES)
    check_dtype("kv_dtype", config.kv_dtype, KV_DTYPES)
    check_dtype("weight_dtype", config.weight_dtype, WEIGHT_DTYPES)
    config.model.check_tensor_parallel(config.tensor_parallel)
    _positive("max_model_len", config.max_model_len, "tokens")
    if config.max_model_len > config.model.max_model_len:
        raise SettingError(
            f"max_model_len={config.max_model_len} is more than the {config.model.max_model_len} "
            f"tokens that {config.model.name} was made for: lower it."
        )
    if not 0 < config.utilization <= 1:
        raise SettingError(
            f"utilization={config.utilization} is out of range: give the share of the GPU's "
            "usable memory that weights, activations and KV may take, above 0 and up to 1."
        )
    if config.kv_budget is not None:
        parse_bytes("kv_budget", config.kv_budget)
    if config.seed < 0:
        raise SettingError(f"seed={config.seed} is negative: give a whole number from 0 up.")
    check_factors(config.cost_factors)
    _positive("time_scale", config.time_scale, "modelled seconds a second")
    _positive("sample_interval_s", config.sample_interval_s, "seconds")
    _positive("flush_s", config.flush_s, "seconds")
    if config.timeline_rows is not None and config.timeline_rows < LEAST_TIMELINE_ROWS:
        raise SettingError(
            f"timeline_rows={config.timeline_rows} is too few: give at least "
            f"{LEAST_TIMELINE_ROWS}, or null to keep all."
        )
    for name, value in (("stop_after_s", config.stop_after_s), ("jobs", config.jobs)):
        if value is not None:
            _positive(name, value, "seconds" if name.endswith("_s") else "runs at a time")
    _check_sources(config.sources)
    _check_engine(config.engine, config.max_model_len)
    _check_driver(config.driver)
    check_load(config.load)
    check_serve(config.serve)


def check_run(config: Config, device: str) -> None:
    """Raises SettingError for what a run on `device`, with its driver, would not follow."""
    if device == "cpu" and config.sources:
        raise SettingError(
            f"sources=[{','.join(config.sources)}] need PyTorch's CUDA caching allocator, which "
            "device=cpu does not use: take device=virtual or device=cuda, or leave sources out."
        )
    _check_one_at_a_time(config, device)
    if config.engine.name == "vllm":
        check_vllm(config, device)
    if device == "cpu" and config.engine.empty_cache != "never":
        raise SettingError(
            f"engine.empty_cache={config.engine.empty_cache} is of PyTorch's CUDA caching "
            "allocator, which device=cpu does not use: leave it at never, or take device=virtual "
            "or device=cuda."
        )
    if config.workload.get("repeat") and config.stop_after_s is None:
        raise SettingError(
            "workload.repeat=true has no end: set stop_after_s, or use `fragbench soak duration=`."
        )
    if device != "virtual" and config.time_scale != 1:
        raise SettingError(
            f"time_scale={config.time_scale:g} is for modelled time and device={device} takes the "
            "time that it takes: leave it at 1, or use device=virtual."
        )
    if config.driver.name == "locust":
        _check_driven(config)


def _check_one_at_a_time(config: Config, device: str) -> None:
    engine = config.engine
    if engine.one_at_a_time and device != "virtual":
        raise SettingError(
            f"engine.one_at_a_time=true is modelled, and device={device} computes in batches: take "
            "device=virtual, or leave it out."
        )
    if engine.cache is not None:
        choice("engine.cache", engine.cache, ("dynamic", "static"))
        if not engine.one_at_a_time or engine.prefill == "chunked":
            raise SettingError(
                f"engine.cache={engine.cache} takes whole prompts, and a forward pass a sequence: "
                "choose engine=transformers, and leave engine.one_at_a_time and engine.prefill as "
                "it has them."
            )
        if config.kv_dtype not in ("fp16", "bf16"):
            raise SettingError(
                f"kv_dtype={config.kv_dtype}: Hugging Face's caches have the model's own type: "
                "give fp16 or bf16."
            )


def _check_driven(config: Config) -> None:
    """driver=locust has a server of its own, with the model of this configuration."""
    load, serve, default = config.load, config.serve, ServeSettings()
    for name, value, unset in (
        ("load.url", load.url, None),
        ("load.master_host", load.master_host, None),
        ("serve.host", serve.host, default.host),
        ("serve.port", serve.port, default.port),
    ):
        if value != unset:
            raise SettingError(
                f"{name}={value} is not used with driver=locust, which starts a server of its own "
                "on a free port of this machine: leave it out, or use `fragbench serve` and "
                "`fragbench load`."
            )
    if load.vocab_size is not None and load.vocab_size > config.model.vocab_size:
        raise SettingError(
            f"load.vocab_size={load.vocab_size} is more than the {config.model.vocab_size} ids of "
            f"{config.model.name}: lower it, or leave it out."
        )


def _check_sources(sources: dict[str, Any]) -> None:
    """Each has its name above its settings, as the files of conf/sources/ say it."""
    if not all(isinstance(settings, dict) for settings in sources.values()):
        raise SettingError(
            f"sources={sources} are no fragmentation sources: choose options of conf/sources/, as "
            "in sources=[lora,graphs]."
        )


def _check_engine(engine: EngineSettings, max_model_len: int) -> None:
    choice("engine.name", engine.name, ENGINES)
    choice("engine.batching", engine.batching, ("continuous", "static"))
    if engine.prefill is not None:
        choice("engine.prefill", engine.prefill, ("whole", "chunked"))
    choice("engine.on_oom", engine.on_oom, ("queue", "fail"))
    choice("engine.empty_cache", engine.empty_cache, ("never", "between", "step"))
    if engine.one_at_a_time and engine.batching == "static":
        raise SettingError(
            "engine.batching=static makes batches and engine.one_at_a_time=true has none: leave "
            "one of them out."
        )
    if not 0 <= engine.temperature < math.inf:
        raise SettingError(
            f"engine.temperature={engine.temperature} is out of range: give 0 for the likeliest "
            "token, or a number above, such as 0.8."
        )
    _positive("engine.max_num_seqs", engine.max_num_seqs, "sequences")
    for name in ("token_budget", "max_live_tokens"):
        value = getattr(engine, name)
        if value is not None:
            _positive(f"engine.{name}", value, "tokens")


def _check_driver(driver: DriverSettings) -> None:
    choice("driver.name", driver.name, ("inprocess", "locust"))
    choice("driver.clock", driver.clock, ("virtual", "wall"))
    if driver.name == "locust" and driver.clock == "virtual":
        raise SettingError(
            "driver.clock=virtual cannot be had over HTTP: leave it at wall, and raise "
            "time_scale to have modelled time pass faster."
        )


def _positive(setting: str, value: float, unit: str) -> None:
    if not 0 < value < math.inf:
        raise SettingError(f"{setting}={value} is out of range: give a number of {unit} above 0.")


def from_container(container: dict[str, Any]) -> Config:
    """A checked Config from plain data (config.yaml, a job's payload)."""
    merged = OmegaConf.merge(OmegaConf.structured(Config), container)
    config = OmegaConf.to_object(merged)
    assert isinstance(config, Config)
    if config.model.checkpoint is not None:
        config.model = checkpoint_shape(config.model.checkpoint)
    check(config)
    return config
