"""The in-repo decoder computes what Llama and OPT compute, on the CPU with small shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from bench.model.decoder import Decoder, rotate
from bench.model.shape import ModelShape
from tests.bench.model.plain import causal

LLAMA = ModelShape(
    name="small",
    layers=2,
    hidden_size=32,
    intermediate_size=48,
    heads=4,
    kv_heads=2,
    head_dim=8,
    vocab_size=64,
    max_model_len=16,
)
OPT = replace(
    LLAMA, kv_heads=4, gated_mlp=False, tied_embeddings=True, learned_positions=True, biases=True
)


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.no_grad():
        yield


def decoder(shape: ModelShape, tensor_parallel: int = 1) -> Decoder:
    made = Decoder(shape, shape.layers, tensor_parallel)
    generator = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    angles = torch.outer(
        torch.arange(shape.max_model_len),
        10_000.0 ** (-torch.arange(shape.head_dim // 2) * 2 / shape.head_dim),
    )[:, None, :]
    made.cos.copy_(angles.cos())
    made.sin.copy_(angles.sin())
    return made


def test_llama_against_a_formula_written_down() -> None:
    model = decoder(LLAMA)
    ids = torch.tensor([3, 14, 15, 9, 26])
    positions = torch.arange(5)
    logits: list[Tensor] = []
    model.lm_head.register_forward_hook(lambda module, given, result: logits.append(result))
    chosen = model(ids, positions, torch.tensor([4]), causal)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    x = model.embed_tokens.weight[ids]
    for layer in model.layers:
        a = layer.attention
        q, k, v = (norm(x, layer.input_norm.weight) @ a.qkv_proj.weight.T).split([32, 16, 16], 1)
        heads = []
        for head in range(4):
            turned = [
                _rotated(part.view(5, -1, 8)[:, number], model)
                for part, number in ((q, head), (k, head // 2))
            ]
            scores = turned[0] @ turned[1].T / 8**0.5
            scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))
            heads.append(scores.softmax(-1) @ v.view(5, 2, 8)[:, head // 2])
        x = x + torch.cat(heads, 1) @ a.o_proj.weight.T
        f = layer.feed_forward
        gate, up = (norm(x, layer.post_attention_norm.weight) @ f.up_proj.weight.T).chunk(2, 1)
        x = x + (gate * gate.sigmoid() * up) @ f.down_proj.weight.T
    expected = norm(x[4:], model.norm.weight) @ model.lm_head.weight.T
    torch.testing.assert_close(logits[0], expected, rtol=1e-4, atol=1e-4)
    assert chosen.tolist() == [int(expected.argmax())]


def _rotated(x: Tensor, model: Decoder) -> Tensor:
    """Pairs (i, i + 4) turn together by the position times the i-th frequency."""
    cos, sin = model.cos[:5, 0], model.sin[:5, 0]
    return torch.cat([x[:, :4] * cos - x[:, 4:] * sin, x[:, 4:] * cos + x[:, :4] * sin], 1)


def test_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    model = decoder(LLAMA)
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(1))

    def score(at: int, to: int) -> float:
        turned = [
            rotate(x, model.cos[p : p + 1], model.sin[p : p + 1]) for x, p in ((q, at), (k, to))
        ]
        assert float(turned[0].norm()) == pytest.approx(float(q.norm()), rel=1e-5)
        return float((turned[0] * turned[1]).sum())

    assert score(7, 3) == pytest.approx(score(12, 8), rel=1e-4)
    assert score(7, 3) != pytest.approx(score(7, 4), rel=1e-3)


def test_opt_has_layer_norms_relu_and_no_rotation() -> None:
    model = decoder(OPT)
    assert isinstance(model.norm, nn.LayerNorm)
    seen: list[Tensor] = []

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen.append(q)
        return causal(layer, q, k, v)

    ids = torch.tensor([3, 14, 15])
    positions = model.embed_positions
    assert positions is not None
    model(ids, torch.arange(3) + 5, torch.tensor([2]), attend)
    # The table starts at row 2: moved up by 5 rows, positions 0 to 2 read what 5 to 7 read.
    positions.weight.copy_(positions.weight.roll(-5, dims=0))
    model(ids, torch.arange(3), torch.tensor([2]), attend)
    assert torch.equal(seen[0], seen[2]), "positions are added, and do not turn the queries"
    layer = model.layers[0]
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
    f = layer.feed_forward
    hidden = (x @ f.up_proj.weight.T + f.up_proj.bias).clamp(min=0)
    torch.testing.assert_close(f(x), hidden @ f.down_proj.weight.T + f.down_proj.bias)


def test_a_prompt_in_chunks_gives_what_it_gives_at_once() -> None:
    """K and V of the first chunk are kept; the second attends to both."""
    model = decoder(LLAMA)
    ids, positions = torch.tensor([3, 14, 15, 9, 26, 5]), torch.arange(6)
    whole = model(ids, positions, torch.tensor([5]), causal)
    kept: list[tuple[Tensor, Tensor]] = []

    def first(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept.append((k, v))
        return causal(layer, q, k, v)

    def second(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k_before, v_before = kept.pop(0)
        padded = torch.cat([q.new_zeros(len(k_before), *q.shape[1:]), q])
        return causal(layer, padded, torch.cat([k_before, k]), torch.cat([v_before, v]))[
            len(k_before) :
        ]

    nothing = model(ids[:4], positions[:4], torch.tensor([], dtype=torch.int64), first)
    assert nothing.shape == (0,)
    assert torch.equal(model(ids[4:], positions[4:], torch.tensor([1]), second), whole)


def test_one_rank_has_its_share_of_heads_rows_and_columns() -> None:
    rank = decoder(LLAMA, tensor_parallel=2)
    shapes: list[tuple[int, ...]] = []

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shapes.append((*q.shape, *k.shape))
        return causal(layer, q, k, v)

    chosen = rank(torch.tensor([3, 14, 15]), torch.arange(3), torch.tensor([0, 2]), attend)
    assert shapes == [(3, 2, 8, 3, 1, 8)] * 2
    assert rank.lm_head.weight.shape == (32, 32), "half of the vocabulary"
    assert chosen.shape == (2,)
    assert rank.layers[0].feed_forward.up_proj.weight.shape == (48, 32)


@pytest.mark.parametrize("shape", [LLAMA, OPT], ids=["llama", "opt"])
def test_its_weights_are_those_that_the_shape_counts(shape: ModelShape) -> None:
    """All but a tied lm_head, which is a tensor of its own here."""
    model = decoder(shape)
    counted = {t.name: t.nbytes // 2 for t in shape.weight_tensors("fp16", 1)}
    counted.setdefault("lm_head", counted["embed_tokens"])
    assert sum(p.numel() for p in model.parameters()) == sum(counted.values())
