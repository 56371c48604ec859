"""What engine=transformers makes of a configuration: its caches are the backend."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

from bench.errors import SettingError

TARGET = "bench.hugging_face.caches.HuggingFaceCaches"


def with_own_caches(config: dict[str, Any]) -> dict[str, Any]:
    """A resolved configuration, with the library's caches as its backend where `engine.cache` names
    one.

    Raises SettingError where the library is missing, and for its caches with another engine.
    """
    cache = config["engine"]["cache"]
    if cache is None:
        if config["backend"].get("_target_") == TARGET:
            raise SettingError(
                f"backend={config['backend'].get('name')} is of engine=transformers: choose a "
                "backend= for this engine."
            )
        return config
    if find_spec("transformers") is None:
        raise SettingError(
            "engine=transformers runs Hugging Face's own caches, and transformers is not "
            "installed: `pip install 'fragbench[transformers]'`."
        )
    backend = {
        "_target_": TARGET,
        "name": f"transformers_{cache}",
        "cache": cache,
        "alloc_conf": "",
    }
    return config | {"backend": backend}


def own_name(name: str | None, backend: str, *, follows_settings: bool = False) -> str | None:
    """A cell's name in its sweep, where its backend is not the one that the sweep says, though it
    may follow the settings of that one."""
    if name is None:
        return None
    parts = re.split(r",(?=[\w.]+=)", name)
    if not follows_settings:
        parts = [part for part in parts if not part.startswith("backend.")]
    said = [f"backend={backend}" if part.startswith("backend=") else part for part in parts]
    return ",".join(said) or f"backend={backend}"
