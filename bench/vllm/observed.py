"""vLLM's own scheduler, which tells what it grants and refuses as it does so.

It decides nothing: `schedule` and the KV cache manager are vLLM's. vLLM takes a scheduler's class
as a setting, `scheduler_cls`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus


class Watcher(Protocol):
    """Hears of each decision of a step, by the ids of our requests; `tokens` are those that would
    have K and V after the step."""

    def extended(self, request: int, tokens: int) -> None: ...
    def admitted(self, request: int, tokens: int) -> None: ...
    def not_extended(self, request: int, tokens: int, preempted: int) -> None: ...
    def not_admitted(self, request: int, tokens: int, shared: int) -> None:
        """`shared` blocks that others hold were found for it."""
        ...

    def scheduled(self, tokens: dict[int, int], preempted: set[int]) -> None:
        """The step's plan in all, as vLLM sums it up."""
        ...


class ObservedScheduler(Scheduler):  # type: ignore[misc,unused-ignore]
    """Also vLLM's block pool in numbers."""

    latest: ClassVar[ObservedScheduler]
    """The one that vLLM made last."""

    watcher: Watcher | None = None
    found_tokens = 0
    """Of the last request that was looked up in the prefix cache."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._allocate_slots = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self._watched_allocate
        self.vllm_ids: dict[int, str] = {}
        """What vLLM calls our requests."""
        ObservedScheduler.latest = self

    def _watched_allocate(self, request: Request, num_new_tokens: int, **kwargs: Any) -> Any:
        blocks = self._allocate_slots(request, num_new_tokens, **kwargs)
        if self.watcher is None:
            return blocks
        own, runs = our_id(request.request_id), request.status == RequestStatus.RUNNING
        tokens = request.num_computed_tokens + num_new_tokens
        if runs and blocks is not None:
            self.watcher.extended(own, tokens)
        elif runs:  # first come, first served: the last that runs is preempted next
            self.watcher.not_extended(own, tokens, our_id(self.running[-1].request_id))
        else:
            self.found_tokens = kwargs.get("num_new_computed_tokens", 0)
            if blocks is not None:
                self.watcher.admitted(own, tokens + self.found_tokens)
            else:
                shared = _held(kwargs.get("new_computed_blocks"))
                self.watcher.not_admitted(own, tokens + self.found_tokens, shared)
        return blocks

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        output = super().schedule(*args, **kwargs)
        if self.watcher is not None:
            tokens = {our_id(each): n for each, n in output.num_scheduled_tokens.items()}
            self.watcher.scheduled(tokens, set(map(our_id, output.preempted_req_ids or ())))
        return output

    @property
    def kinds_of_blocks(self) -> list[tuple[int, int]]:
        """Tokens of a block, and its bytes in all layers that have such blocks."""
        groups = self.kv_cache_config.kv_cache_groups
        specs = ((each.kv_cache_spec, len(each.layer_names)) for each in groups)
        return [(spec.block_size, spec.page_size_bytes * layers) for spec, layers in specs]

    @property
    def usable(self) -> int:
        """Blocks that requests can ever hold: all but the null block."""
        return int(self.kv_cache_manager.block_pool.num_gpu_blocks) - 1

    @property
    def free(self) -> int:
        """Blocks that can be given out, cached ones included."""
        return int(self.kv_cache_manager.block_pool.get_num_free_blocks())

    @property
    def cached(self) -> int:
        """Free blocks that are kept for reuse."""
        if not self.cache_config.enable_prefix_caching:
            return 0
        blocks = self.kv_cache_manager.block_pool.blocks
        return sum(block.ref_cnt == 0 and block.block_hash is not None for block in blocks)

    def held_by(self, sequence: int) -> int:
        """Blocks of one of our requests, shared ones included."""
        return len(self.kv_cache_manager.get_blocks(self.vllm_ids[sequence]).blocks[0])


def our_id(vllm_id: str) -> int:
    """vLLM adds random letters to a request's id.

    >>> our_id("12-0a1b2c3d")
    12
    """
    return int(vllm_id.partition("-")[0])


def _held(found: Any) -> int:
    """Blocks found in the prefix cache that requests hold now."""
    return 0 if found is None else sum(block.ref_cnt > 0 for block in found.blocks[0])
