"""Text to tokens and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from bench.errors import SettingError
from bench.serve.tokenizer import ByteTokenizer, end_of_sequence_ids, make_tokenizer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SAMPLE = "Wer nachts um drei Blöcke zählt, schläft schlecht: 木、東京、🦙🦙 und naïve Café-Gäste."


def decoded(tokenizer: object, ids: list[int]) -> list[str]:
    """What each token adds, and what is left."""
    decoder = tokenizer.decoder()  # type: ignore[attr-defined]
    return [*(decoder.push(token_id) for token_id in ids), decoder.flush()]


@given(text=TEXTS)
def test_bytes_of_a_text_are_its_tokens(text: str) -> None:
    tokenizer = ByteTokenizer(256)
    assert tokenizer.encode(text) == list(text.encode())
    assert "".join(decoded(tokenizer, tokenizer.encode(text))) == text


@given(parts=st.lists(st.one_of(TEXTS, st.integers(256, 1999))))
def test_ids_beyond_bytes_read_as_they_are_written(parts: list[str | int]) -> None:
    tokenizer = ByteTokenizer(2000)
    ids: list[int] = []
    for part in parts:
        ids += [part] if isinstance(part, int) else part.replace("<|", "").encode()
    text = "".join(decoded(tokenizer, ids))
    assert "".join(decoded(tokenizer, tokenizer.encode(text))) == text
    if all(isinstance(part, int) for part in parts):
        assert tokenizer.encode(text) == ids


def test_an_id_that_the_model_has_not_is_text() -> None:
    assert ByteTokenizer(300).encode("<|300|>") == list(b"<|300|>")
    assert ByteTokenizer(301).encode("<|300|>") == [300]
    assert ByteTokenizer(301).encode("<|0300|><|65|>") == list(b"<|0300|><|65|>")


def test_a_character_is_told_when_its_last_byte_has_come() -> None:
    assert decoded(ByteTokenizer(300), list("a🦙".encode())) == ["a", "", "", "", "🦙", ""]


def test_a_cut_character_is_replaced() -> None:
    assert decoded(ByteTokenizer(300), [0xC3, 299, 0xC3]) == ["", "\ufffd<|299|>", "", "\ufffd"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level BPE of real merges, trained here."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["</s>"], show_progress=False
    )
    tokenizer.train_from_iterator([SAMPLE] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@given(text=st.one_of(TEXTS, st.just(SAMPLE)))
def test_a_checkpoints_tokenizer_gives_its_text_back_in_whole_characters(
    checkpoint: Path, text: str
) -> None:
    tokenizer = make_tokenizer("auto", str(checkpoint), 300)
    pieces = decoded(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    assert "\ufffd" in text or "\ufffd" not in "".join(pieces)


def test_tokens_that_are_no_text_do_not_wait_for_ever(checkpoint: Path) -> None:
    tokenizer = make_tokenizer(str(checkpoint), None, 300)
    lone_continuation = tokenizer.encode("é")[-1:] * 20
    pieces = decoded(tokenizer, lone_continuation)
    assert "".join(pieces[:8])


def test_special_tokens_are_no_text(checkpoint: Path) -> None:
    tokenizer = make_tokenizer(str(checkpoint / "tokenizer.json"), None, 300)
    assert tokenizer.encode("</s>") == [0]
    assert "".join(decoded(tokenizer, [0])) == ""


def test_bytes_are_taken_where_there_is_no_tokenizer(tmp_path: Path) -> None:
    for setting, folder in (("auto", None), ("auto", str(tmp_path)), ("bytes", str(tmp_path))):
        assert make_tokenizer(setting, folder, 256).encode("é") == [0xC3, 0xA9]


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    for setting in (str(tmp_path), str(tmp_path / "nowhere.json")):
        with pytest.raises(SettingError, match=r"serve\.tokenizer=.*cannot be read"):
            make_tokenizer(setting, None, 256)


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [
        ({"eos_token_id": 2}, None, {2}),
        ({"eos_token_id": [2, 5]}, {"eos_token_id": 7}, {2, 5, 7}),
        ({"eos_token_id": None}, {}, set()),
    ],
)
def test_end_of_sequence_ids_are_those_of_the_checkpoints_files(
    config: object, generation: object, ids: set[int], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    assert end_of_sequence_ids(str(tmp_path)) == ids


def test_no_checkpoint_has_no_end_of_sequence() -> None:
    assert end_of_sequence_ids(None) == frozenset()
