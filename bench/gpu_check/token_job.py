"""Greedy tokens of the small model through one backend, and how near to the best their logits are.

The weights are made on the CPU, so that they are the same wherever the tokens are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from backends.base import Backend, DeviceName, KvHeads, KvLayout
from bench.costs import CostModel
from bench.device.job import report_progress
from bench.engine.engine import Engine
from bench.engine.incidents import IncidentLog
from bench.engine.model_executor import ModelExecutor
from bench.engine.real_model import run_without_memory
from bench.engine.scheduler import Limits
from bench.engine.sequence import Sequence as EngineSequence
from bench.engine.text import Text
from bench.metrics.accounting import MemoryAccount
from bench.metrics.status import Status
from bench.model.decoder import Decoder
from bench.model.sampling import Sampler
from bench.model.shape import ModelShape
from bench.model.weights import compute_dtypes, random_decoder
from bench.packaged import load_constants, load_gpu, load_model
from workloads.base import Request

SEED = 0
MAX_MODEL_LEN = 256
COPIES = 4
# Prompts at block boundaries, and outputs; all come at once, each prompt COPIES times.
PROMPTS = (15, 16, 17, 40, 33, 1, 64, 31, 90, 48)
OUTPUTS = (80, 12, 160, 68, 4, 120, 48, 200, 36, 104)
LIMITS = Limits(
    prefill="chunked",
    token_budget=64,
    max_num_seqs=64,
    max_live_tokens=None,
    admit_whole_prompt=True,
    on_oom="queue",
)


def greedy_tokens(payload: Mapping[str, Any]) -> dict[str, Any]:
    """`tokens` of each request, its prompt first, `preemptions`, and for fp32 the `worst_gap`
    (else None): how far below the best logit of a plain forward pass on the CPU a token's was.

    The payload has the `backend` ("module:class"), `budget_bytes`, `device` and `dtype`.
    """
    shape = load_model("tiny")
    dtype = payload["dtype"]
    decoder = random_decoder(shape, torch.float32, SEED)
    on_device = random_decoder(shape, torch.float32, SEED)
    on_device.to(payload["device"], compute_dtypes(dtype, dtype)[0])
    module, _, kind = payload["backend"].partition(":")
    served = serve(
        shape, on_device, getattr(import_module(module), kind)(), payload["budget_bytes"],
        payload["device"], dtype,
    )  # fmt: skip
    report_progress({"said": f"{kind}, {dtype} on {payload['device']}: served"})
    if dtype != "fp32":
        return served | {"worst_gap": None}
    texts = zip(map(tuple, served["tokens"]), PROMPTS * COPIES, strict=True)
    gaps = [worst_gap(decoder, tokens, prompt) for tokens, prompt in dict.fromkeys(texts)]
    return served | {"worst_gap": max(gaps)}


def serve(
    shape: ModelShape,
    decoder: Decoder,
    backend: Backend,
    budget_bytes: int,
    device: DeviceName,
    dtype: str,
) -> dict[str, Any]:
    """`tokens` and `preemptions` of all requests, served together."""
    token_bytes = shape.kv_bytes_per_token(dtype, 1)
    heads = KvHeads(shape.kv_heads, shape.head_dim, compute_dtypes(dtype, dtype)[1])
    # Or what a matrix product keeps for itself would be taken for the backend's.
    run_without_memory(decoder, device, LIMITS.token_budget, LIMITS.token_budget)
    backend.start(KvLayout(shape.layers, token_bytes, MAX_MODEL_LEN, budget_bytes, device, heads))
    costs = CostModel(
        shape=shape,
        gpu=load_gpu("a100_80gb"),  # what the model says of the steps is not looked at
        weight_dtype="fp16",
        kv_dtype="fp16",
        tensor_parallel=1,
        constants=load_constants(),
        kv_block_tokens=backend.block_tokens,
    )
    ended: list[Status] = []

    def on_end(sequence: EngineSequence, status: Status, cause: str | None, end_s: float) -> None:
        ended.append(status)

    engine = Engine(
        backend,
        ModelExecutor(decoder, backend, Sampler(0.0, SEED), costs, device),
        LIMITS,
        MemoryAccount(token_bytes, budget_bytes),
        IncidentLog(dict),
        MAX_MODEL_LEN,
        on_end,
        lambda request: Text(_prompt(request, shape.vocab_size)),
    )
    sequences = _serve_all(engine, backend)
    assert ended == [Status.COMPLETED] * len(sequences), ended
    texts = [sequence.text for sequence in sequences]
    return {
        "tokens": [list(text.branches[0]) for text in texts if text is not None],
        "preemptions": engine.preemptions,
    }


def _serve_all(engine: Engine, backend: Backend) -> list[EngineSequence]:
    pairs = zip(PROMPTS * COPIES, OUTPUTS * COPIES, strict=True)
    sequences = [
        engine.add(Request(number, 0.0, prompt, output), 0.0)
        for number, (prompt, output) in enumerate(pairs)
    ]
    now = 0.0
    while not engine.idle:
        step = engine.step(now)
        now = now if step is None else step.end_s
        backend.check_integrity()
    return sequences


def _prompt(request: Request, vocab_size: int) -> list[int]:
    """Of three families, so that prompts start alike; each is said COPIES times."""
    number = request.request_id % len(PROMPTS)
    generator = torch.Generator().manual_seed(number % 3)
    ids = torch.randint(vocab_size, (request.prompt_tokens,), generator=generator).tolist()
    return [*ids[:-2], number, 7][-request.prompt_tokens :]


@torch.inference_mode()
def worst_gap(decoder: Decoder, token_ids: Sequence[int], prompt_tokens: int) -> float:
    """The most that a generated token's logit is below the best, in one pass without a cache."""
    ids = torch.tensor(token_ids)
    places = torch.arange(prompt_tokens - 1, len(ids) - 1)
    logits = decoder.logits(ids, torch.arange(len(ids)), places, _attend)
    chosen = logits.gather(1, ids[prompt_tokens:, None])[:, 0]
    return float((logits.amax(dim=1) - chosen).max())


def _attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of one sequence, from its first token on."""
    attended = functional.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True, enable_gqa=True
    )
    return attended.transpose(0, 1)
