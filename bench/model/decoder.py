"""A decoder-only transformer in plain torch: Llama, and OPT where the shape asks for it.

Sequences of a step are packed in one row of tokens, without padding. How attention reaches K and
V is the caller's: `attend` takes a layer's number, q (tokens, heads, head_dim), k and v (tokens,
kv_heads, head_dim) and returns (tokens, heads, head_dim). Under tensor parallelism this is one
rank.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.model.shape import OPT_POSITION_OFFSET, ModelShape

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class Linear(nn.Linear):
    """Without first weights: those of a decoder are always set, and drawing some takes longer."""

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """Likewise."""

    def reset_parameters(self) -> None:
        pass


class RMSNorm(nn.Module):
    """Root-mean-square norm (Zhang and Sennrich, 2019), computed in fp32 as checkpoints expect."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self._epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._epsilon)
        return wide.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Grouped-query attention with rotary positions unless the model learns them."""

    def __init__(self, shape: ModelShape, layer: int, tensor_parallel: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads = shape.heads // tensor_parallel
        self.kv_heads = shape.kv_heads // tensor_parallel
        self.head_dim = shape.head_dim
        qkv_proj, o_proj, *_ = shape.linear_layers(tensor_parallel)
        self.rotary = not shape.learned_positions
        self.qkv_proj = Linear(qkv_proj.inputs, qkv_proj.outputs, bias=shape.biases)
        self.o_proj = Linear(o_proj.inputs, o_proj.outputs, bias=shape.biases)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        qkv = self.qkv_proj(x).view(len(x), -1, self.head_dim)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if self.rotary:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        attended = attend(self.layer, q, k, v).reshape(len(x), -1)
        return self.o_proj(attended)  # type: ignore[no-any-return]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (Su et al., 2021): x (tokens, heads, d), cos and sin (tokens, 1, d / 2)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class FeedForward(nn.Module):
    """SwiGLU (Llama), or ReLU between two projections (OPT)."""

    def __init__(self, shape: ModelShape, tensor_parallel: int) -> None:
        super().__init__()
        _, _, up, down = shape.linear_layers(tensor_parallel)
        self.gated = shape.gated_mlp
        self.up_proj = Linear(up.inputs, up.outputs, bias=shape.biases)
        self.down_proj = Linear(down.inputs, down.outputs, bias=shape.biases)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        if self.gated:
            gate, up = up.chunk(2, dim=-1)
            return self.down_proj(functional.silu(gate) * up)  # type: ignore[no-any-return]
        return self.down_proj(functional.relu(up))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each after a norm and with a residual."""

    def __init__(self, shape: ModelShape, layer: int, tensor_parallel: int) -> None:
        super().__init__()
        self.input_norm = _norm(shape)
        self.attention = Attention(shape, layer, tensor_parallel)
        self.post_attention_norm = _norm(shape)
        self.feed_forward = FeedForward(shape, tensor_parallel)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        x = x + self.attention(self.input_norm(x), cos, sin, attend)
        return x + self.feed_forward(self.post_attention_norm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """`layers` layers of a model's shape, between the embedding and greedy sampling."""

    def __init__(self, shape: ModelShape, layers: int, tensor_parallel: int) -> None:
        super().__init__()
        vocab_rows = shape.vocab_rows(tensor_parallel)
        self.vocab_size = shape.vocab_size
        self.embed_tokens = Embedding(vocab_rows, shape.hidden_size)
        self.embed_positions = (
            Embedding(shape.position_rows, shape.hidden_size) if shape.learned_positions else None
        )
        self.layers = nn.ModuleList(
            DecoderLayer(shape, layer, tensor_parallel) for layer in range(layers)
        )
        self.norm = _norm(shape)
        self.lm_head = Linear(shape.hidden_size, vocab_rows, bias=False)
        table = shape.max_model_len, 1, shape.head_dim // 2
        self.cos = nn.Buffer(torch.empty(table))
        self.sin = nn.Buffer(torch.empty(table))

    def forward(
        self, token_ids: Tensor, positions: Tensor, sampled_rows: Tensor, attend: Attend
    ) -> Tensor:
        """Likeliest next token ids (rows,) after the rows of the step that end their sequence's
        prompt or decode; token_ids and positions are (tokens,), sampled_rows (rows,), all int64."""
        logits = self.logits(token_ids, positions, sampled_rows, attend)
        return logits.argmax(dim=-1)

    def logits(
        self, token_ids: Tensor, positions: Tensor, sampled_rows: Tensor, attend: Attend
    ) -> Tensor:
        """Scores of the next token after `sampled_rows`, (rows, vocabulary) in float32."""
        x = self.embed_tokens(token_ids)
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions + OPT_POSITION_OFFSET)
        cos, sin = self.cos[positions], self.sin[positions]
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        logits = self.lm_head(self.norm(x)[sampled_rows])
        if logits.shape[1] < self.vocab_size:  # one rank's part: room for all ranks' logits
            logits = logits.new_empty(len(logits), self.vocab_size)
        return logits[:, : self.vocab_size].float()  # type: ignore[no-any-return]


def _norm(shape: ModelShape) -> nn.Module:
    if shape.biases:
        return nn.LayerNorm(shape.hidden_size)
    return RMSNorm(shape.hidden_size, shape.norm_epsilon)
