"""Where answers end, and what of their text is told when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.serve.answer import Answer, StopFinder
from bench.serve.tokenizer import ByteTokenizer

TEXT = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """By trying every end in order: the text before the longest stop word that ends first."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(pieces=st.lists(TEXT, max_size=6), stops=STOPS)
def test_text_is_cut_before_the_first_stop_word_however_it_comes(
    pieces: list[str], stops: list[str]
) -> None:
    finder = StopFinder(stops)
    said = ""
    for piece in pieces:
        said += finder.push(piece)
        if finder.found is not None:
            break
    else:
        said += finder.flush()
    assert (said, finder.found) == first_stop("".join(pieces), stops)


def test_only_what_may_begin_a_stop_word_is_held_back() -> None:
    finder = StopFinder(["END"])
    assert finder.push("the E") == "the "
    assert finder.push("N") == ""
    assert finder.push("ough") == "ENough"
    assert finder.push(" EN") == " "
    assert finder.flush() == "EN"


def said(answer: Answer, text: str) -> list[str]:
    """What each byte of the text adds."""
    return [answer.push(byte) for byte in text.encode()]


def answer(**limits: object) -> Answer:
    settings = {"max_tokens": 100, "min_tokens": 0, "stops": (), "eos_ids": frozenset()} | limits
    return Answer(0, ByteTokenizer(300).decoder(), **settings)  # type: ignore[arg-type]


def test_the_longest_answer_ends_with_all_of_its_text() -> None:
    one = answer(max_tokens=3, stops=("xyz",))
    assert said(one, "axy") == ["a", "", "xy"]
    assert (one.finish_reason, one.tokens, one.matched) == ("length", 3, None)


def test_a_stop_word_ends_the_answer_and_is_not_said() -> None:
    one = answer(stops=("no", "stop"))
    assert said(one, "astop") == ["a", "", "", "", ""]
    assert (one.finish_reason, one.tokens, one.matched) == ("stop", 5, "stop")


def test_a_stop_word_in_the_last_token_is_the_reason() -> None:
    one = answer(max_tokens=4, stops=("b",))
    assert said(one, "aaab") == ["a", "a", "a", ""]
    assert one.finish_reason == "stop"


@pytest.mark.parametrize(("least", "text", "tokens"), [(0, "", 1), (1, ".a", 3), (3, ".a.", 4)])
def test_the_first_tokens_end_nothing(least: int, text: str, tokens: int) -> None:
    one = answer(min_tokens=least, stops=(".",))
    told = ""
    for byte in b".a..":
        told += one.push(byte)
        if one.finish_reason:
            break
    assert (one.finish_reason, told, one.tokens) == ("stop", text, tokens)


def test_an_end_of_sequence_token_counts_and_has_no_text() -> None:
    one = answer(eos_ids=frozenset({299}), stops=("ab",))
    assert one.push(ord("a")) == ""
    assert one.push(299) == "a"
    assert (one.finish_reason, one.tokens, one.matched) == ("stop", 2, 299)


def test_an_end_of_sequence_token_among_the_first_is_only_a_token() -> None:
    one = answer(eos_ids=frozenset({299}), min_tokens=1)
    assert one.push(299) == "<|299|>"
    assert one.finish_reason is None
    assert one.push(299) == ""
    assert one.finish_reason == "stop"


def test_a_character_that_the_end_cuts_is_replaced() -> None:
    one = answer(max_tokens=2)
    assert [one.push(byte) for byte in "aé".encode()[:2]] == ["a", "\ufffd"]


def test_an_answer_that_the_engine_ends_gives_what_was_held_back() -> None:
    one = answer(stops=("xyz",))
    assert said(one, "axy") == ["a", "", ""]
    assert one.end() == "xy"
    assert one.finish_reason == "stop"
