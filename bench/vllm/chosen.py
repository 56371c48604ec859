"""What engine=vllm makes of a configuration: its block pool is the backend."""

from __future__ import annotations

from typing import Any

from bench.errors import SettingError

OWN = {
    "backends.paged.Paged": "bench.vllm.pool.VllmPool",
    "backends.paged_prefix.PagedPrefix": "bench.vllm.pool.VllmPrefixPool",
}
"""vLLM's pool without and with prefix caching, by the backend that says so."""

NAMES = {
    "backends.paged.Paged": "paged",
    "backends.paged_prefix.PagedPrefix": "paged_prefix",
    "bench.vllm.pool.VllmPool": "vllm",
    "bench.vllm.pool.VllmPrefixPool": "vllm_prefix",
}


def with_block_pool(config: dict[str, Any]) -> dict[str, Any]:
    """A resolved configuration, with vLLM's own pool in place of a paged backend where engine=vllm,
    and the other way round for one that came from an earlier run.

    Raises SettingError for a backend that vLLM has nothing like.
    """
    target = config["backend"].get("_target_")
    if config["engine"]["name"] != "vllm":
        return _with_target(config, {own: ours for ours, own in OWN.items()}.get(target))
    if target not in NAMES:
        raise SettingError(
            f"backend={config['backend'].get('name')}: vLLM lays K and V out in blocks of its own: "
            "with engine=vllm choose backend=paged, or backend=paged_prefix for its prefix caching."
        )
    return _with_target(config, OWN.get(target))


def _with_target(config: dict[str, Any], target: str | None) -> dict[str, Any]:
    """With another backend of the same settings, None for the one that it has."""
    if target is None:
        return config
    own = {"_target_": target, "name": NAMES[target]}
    return config | {"backend": config["backend"] | own}
