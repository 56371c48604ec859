"""A model's shape as the config.json that vLLM reads."""

from __future__ import annotations

from typing import Any

from bench.model.shape import ModelShape


def model_config(shape: ModelShape) -> dict[str, Any]:
    """Hugging Face's configuration: OPT's for learned positions, else Llama's."""
    common = {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_model_len,
        "tie_word_embeddings": shape.tied_embeddings,
        "torch_dtype": "float16",
    }
    if shape.learned_positions:
        return common | {
            "architectures": ["OPTForCausalLM"],
            "model_type": "opt",
            "ffn_dim": shape.intermediate_size,
            "word_embed_proj_dim": shape.hidden_size,
            "do_layer_norm_before": True,
            "activation_function": "relu",
            "enable_bias": shape.biases,
        }
    return common | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "intermediate_size": shape.intermediate_size,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "attention_bias": shape.biases,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_theta": shape.rope_theta,
    }
