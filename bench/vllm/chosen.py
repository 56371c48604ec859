"""What engine=vllm makes of a configuration: its block pool is the backend."""

from __future__ import annotations

from typing import Any

from bench.errors import SettingError

TARGETS = {
    "paged": ("vllm", "bench.vllm.pool.VllmPool"),
    "paged_prefix": ("vllm_prefix", "bench.vllm.pool.VllmPrefixPool"),
}
"""By the backend that says so: vLLM's pool without and with prefix caching."""


def with_block_pool(config: dict[str, Any]) -> dict[str, Any]:
    """A resolved configuration, with vLLM's own pool in place of a paged backend where engine=vllm.

    Raises SettingError for a backend that vLLM has nothing like.
    """
    backend = config["backend"]
    if config["engine"]["name"] != "vllm" or backend.get("_target_") in _own_targets():
        return config
    if backend.get("name") not in TARGETS:
        raise SettingError(
            f"backend={backend.get('name')}: vLLM lays K and V out in blocks of its own: with "
            "engine=vllm choose backend=paged, or backend=paged_prefix for its prefix caching."
        )
    name, target = TARGETS[backend["name"]]
    return config | {"backend": backend | {"_target_": target, "name": name}}


def _own_targets() -> set[str]:
    return {target for _, target in TARGETS.values()}
