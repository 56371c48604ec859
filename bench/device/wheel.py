"""What the installed PyTorch is, read from its files: importing it takes seconds."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from bench.errors import SettingError


@dataclass(frozen=True, slots=True)
class TorchWheel:
    """An installed PyTorch. `cuda` is the CUDA version that it was built for, None for CPU only."""

    folder: Path
    version: str
    cuda: str | None

    @property
    def cuda_major(self) -> int | None:
        """12 or 13, say; None for a CPU-only build."""
        return None if self.cuda is None else int(self.cuda.split(".")[0])


def find_torch() -> TorchWheel:
    """The PyTorch that `import torch` would import.

    Raises SettingError if there is none.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SettingError("PyTorch is not installed: install it with `pip install torch`")
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text(encoding="utf-8")
    return TorchWheel(folder, _assigned(text, "__version__") or "unknown", _assigned(text, "cuda"))


def find_cuda_headers(wheel: TorchWheel) -> Path:
    """The folder of the CUDA headers that come with a CUDA build of PyTorch.

    They are needed because structures such as `cudaDeviceProp` differ between CUDA versions.
    Raises SettingError if PyTorch is CPU only or the headers are not there.
    """
    if wheel.cuda is None:
        raise SettingError(
            f"device=virtual needs a CUDA build of PyTorch and {wheel.version} is CPU only: "
            "install PyPI's (`pip install torch`, no GPU needed) or use device=cpu"
        )
    packages = wheel.folder.parent / "nvidia"
    for place in (f"cu{wheel.cuda_major}", "cuda_runtime"):
        include = packages / place / "include"
        if (include / "cuda_runtime_api.h").is_file() and (include / "cuda.h").is_file():
            return include
    raise SettingError(
        f"device=virtual needs the CUDA headers that PyPI's PyTorch brings, and {packages} has "
        "none: reinstall with `pip install --force-reinstall torch` or use device=cpu"
    )


def _assigned(source: str, name: str) -> str | None:
    """The string that a line of `torch/version.py` gives to a name; None if it is None."""
    found = re.search(rf"^{name}\b[^=]*=\s*'([^']*)'", source, re.MULTILINE)
    return found[1] if found else None
