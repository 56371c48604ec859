"""The settings of `fragbench replay`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.device.exec import resized
from bench.errors import SettingError
from bench.gpu import Gpu
from bench.key_values import read_key_values
from bench.packaged import load_gpu

UNSET = "default"
"""How `alloc_conf` says that nothing is set."""

TRIED = ("expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8")
"""What is tried where no settings are given."""

EXAMPLES = {
    "gpu": "a100_80gb",
    "memory": "24",
    "alloc_conf": "expandable_segments:True",
    "device_index": "0",
    "memory_fraction": "0.95",
    "out": "results/mine",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for. `alloc_confs` are what PYTORCH_ALLOC_CONF would hold, "" for nothing;
    None if none were given. `out` is None for a dated folder."""

    snapshot: Path
    gpu: Gpu
    alloc_confs: tuple[str, ...] | None
    device_index: int | None
    memory_fraction: float | None
    out: str | None

    def to_replay(self, recorded: str | None) -> list[str]:
        """Each setting once: PyTorch's default first, then those that were given, or else the
        recorded ones and those that are always tried."""
        chosen = self.alloc_confs
        if chosen is None:
            chosen = ((recorded,) if recorded else ()) + TRIED
        return list(dict.fromkeys(("", *chosen)))


def read_settings(argv: Sequence[str]) -> Settings:
    """From a file's name and key=value arguments. Raises SettingError."""
    if not argv or "=" in argv[0] or argv[0].startswith("-"):
        raise SettingError(
            "replay: the snapshot comes first, as in "
            "`fragbench replay snapshot.pickle gpu=h100_80gb`."
        )
    confs = [each for each in argv[1:] if each.partition("=")[0] == "alloc_conf"]
    given = read_key_values("replay", argv[1:], EXAMPLES)
    gpu = load_gpu(given.get("gpu", "a100_80gb"))
    if "memory" in given:
        gpu = resized("replay", gpu, given["memory"])
    return Settings(
        snapshot=Path(argv[0]).expanduser(),
        gpu=gpu,
        alloc_confs=tuple(_conf(each.partition("=")[2]) for each in confs) or None,
        device_index=_device_index(given.get("device_index")),
        memory_fraction=_fraction(given.get("memory_fraction")),
        out=given.get("out"),
    )


def name_of(alloc_conf: str) -> str:
    """How settings are called where people read."""
    return alloc_conf or UNSET


def _conf(text: str) -> str:
    """One configuration, in PyTorch's own syntax, which has commas of its own."""
    if text == UNSET:
        return ""
    if UNSET in text.split(","):
        raise SettingError(
            f"alloc_conf={text} is a list: a comma belongs to one configuration, so give "
            f"alloc_conf= several times, as in alloc_conf={UNSET} alloc_conf={TRIED[0]}."
        )
    return text


def _device_index(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise SettingError(
            f"device_index={text} must be a whole number from 0 on: it is a GPU of the snapshot."
        )
    return int(text)


def _fraction(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        fraction = float(text)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise SettingError(
            f"memory_fraction={text} must be a number above 0 and at most 1: what the program "
            "gives to torch.cuda.set_per_process_memory_fraction."
        )
    return fraction
