"""Fields of OpenAI's and vLLM's API that are not done here: a value that changes nothing is
accepted, any other is refused, because an answer that ignores it would be a wrong one.

Fields that are in no list are ignored, as OpenAI-compatible servers do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bench.serve.openai_errors import shown, wrong

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "best_of": (1,),
    "use_beam_search": (False,),
    "echo": (False,),
    "suffix": ("",),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "prompt_embeds": (),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "include_stop_str_in_output": (False,),
    "truncate_prompt_tokens": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "modalities": (["text"],),
    "audio": (),
}


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raises ApiError (400) for the first field that asks for what is not done."""
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if value is not None and not any(_same(value, each) for each in neutral):
            allowed = " or ".join(map(json.dumps, neutral))
            fix = f"leave it out, or send {allowed}" if neutral else "leave it out"
            raise wrong(
                name, f"{name}={shown(value)} is not supported: {fix}.", "unsupported_value"
            )
    logprobs = body.get("logprobs")
    if logprobs is not None and logprobs is not False:
        raise wrong(
            "logprobs",
            f"logprobs={shown(logprobs)} is not supported, as log probabilities are not kept: "
            "leave it out.",
            "unsupported_value",
        )


def _same(value: Any, neutral: Any) -> bool:
    """Equal in JSON, where true is not 1."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
