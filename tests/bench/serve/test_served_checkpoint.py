"""A Hugging Face checkpoint behind the server says what its own library makes it say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.bench.serve.running import Server, running

WORDS = [
    "who",
    "what",
    "where",
    "when",
    "why",
    "block",
    "cache",
    "memory",
    "free",
    "held",
    "the",
    "a",
    "is",
    "of",
    "token",
]
PROMPT = "where is the free block"
LONGEST = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama with a tokenizer of whole words."""
    folder = tmp_path_factory.mktemp("checkpoint")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(2)
    config = transformers.LlamaConfig(
        hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, vocab_size=len(WORDS), max_position_embeddings=64,
        initializer_range=0.5, eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def reference(folder: Path) -> list[int]:
    """The likeliest continuation, by the library."""
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
    ids = [[WORDS.index(word) for word in PROMPT.split()]]
    with torch.inference_mode():
        both = model.generate(torch.tensor(ids), max_new_tokens=LONGEST, do_sample=False)
    answer: list[int] = both[0].tolist()[len(ids[0]) :]
    assert len(set(answer)) > 3, "an answer with too little in it to tell right from wrong"
    return answer


@pytest.fixture(scope="module")
def server(
    folder: Path, reference: list[int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Its end-of-sequence token is one that the answer has, not at once."""
    config = json.loads((folder / "config.json").read_text())
    eos = reference[first_new(reference)]
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": [eos]}))
    out = tmp_path_factory.mktemp("serve") / "run"
    ours = ("device=cpu", "model=tiny", f"model.checkpoint={folder}", "max_model_len=64")
    with running(out, "backend=paged", *ours, "kv_budget=64MiB", "served_model_name=own") as server:
        yield server


def first_new(answer: list[int]) -> int:
    """Where the second kind of token comes first."""
    return next(place for place, token in enumerate(answer) if token != answer[0])


def asked(server: Server, **fields: object) -> dict[str, object]:
    body = {"prompt": PROMPT, "max_tokens": LONGEST, "return_token_ids": True} | fields
    answered = server.post("completions", body)
    assert answered.status == 200, answered
    choice: dict[str, object] = answered.json["choices"][0]
    return choice


def test_answers_are_the_librarys(server: Server, reference: list[int]) -> None:
    choice = asked(server, ignore_eos=True)
    assert choice["token_ids"] == reference
    assert choice["text"] == " ".join(WORDS[token] for token in reference)
    assert choice["finish_reason"] == "length"


def test_an_end_of_sequence_token_ends_the_answer(server: Server, reference: list[int]) -> None:
    end = first_new(reference)
    choice = asked(server)
    assert choice["token_ids"] == reference[: end + 1]
    assert choice["text"] == " ".join(WORDS[token] for token in reference[:end])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", reference[end])


def test_it_ends_none_that_is_to_be_longer(server: Server, reference: list[int]) -> None:
    end = first_new(reference)
    later = next(
        place for place in range(end + 1, LONGEST + 1)
        if place == LONGEST or reference[place] == reference[end]
    )  # fmt: skip
    choice = asked(server, min_tokens=end + 1)
    assert choice["token_ids"] == reference[: later + 1]
