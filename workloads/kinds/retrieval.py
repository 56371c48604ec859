"""Retrieval-augmented generation: questions behind passages that other questions need too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from workloads.base import Request, Segment
from workloads.clients import Clients
from workloads.kinds.base import Draft, Drafts, check_share
from workloads.lengths.base import Lengths, check_lengths
from workloads.settings import MAX_TOKENS, count, refusal
from workloads.shared_texts import SharedTexts, check_texts, shared_segment
from workloads.streams import stream

_ORDERS = ("relevance", "popularity")


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieval:
    """Requests whose prompt is a shared system prompt, `passages` different documents of a corpus,
    and a question of their own.

    `document_order` relevance puts the documents in random order: how well one suits a question
    does not depend on how popular it is. popularity puts the most popular first, as systems do
    that reorder for their cache's sake; the documents are the same.

    An output is cut where prompt + output would pass the workload's `max_total_tokens`. Documents,
    their order, questions and answers draw from streams of their own.
    """

    documents: SharedTexts
    passages: int
    question: Lengths
    answer: Lengths
    system_prompt_tokens: int = 0
    document_order: str = "relevance"
    share: float = 1.0
    clients: Clients | None = None

    def least_total_tokens(self) -> int:
        documents = self.passages * self.documents.lengths.max_tokens
        return self.system_prompt_tokens + documents + self.question.max_tokens + 1

    def check(self, setting: str) -> None:
        check_share(setting, self.share)
        texts = check_texts(f"{setting}.documents", self.documents)
        fix = f"change it, or {setting}.documents.count"
        count(f"{setting}.passages", self.passages, 1, texts.count, "documents", fix)
        check_lengths(f"{setting}.question", self.question)
        check_lengths(f"{setting}.answer", self.answer)
        name, fix = f"{setting}.system_prompt_tokens", "0 is no system prompt"
        count(name, self.system_prompt_tokens, 0, MAX_TOKENS, "tokens", fix)
        if self.document_order not in _ORDERS:
            fix = "relevance is as retrieved, popularity the most popular first"
            allowed = " or ".join(_ORDERS)
            raise refusal(f"{setting}.document_order", self.document_order, allowed, fix)

    def drafts(self, name: str, seed: int, max_total_tokens: int | None) -> Drafts:
        return _Drawn(self, name, seed, max_total_tokens).drafts


class _Drawn:
    """The random state of one run."""

    def __init__(self, kind: Retrieval, name: str, seed: int, max_total_tokens: int | None) -> None:
        self._name, self._kind, self._max_total_tokens = name, kind, max_total_tokens
        names = ("documents", "order", "questions", "answers")
        self._streams = {each: stream(seed, f"retrieval/{name}/{each}") for each in names}
        self._documents = kind.documents.segments(f"documents/{name}")
        self._start: tuple[Segment, ...] = ()
        if kind.system_prompt_tokens:
            own = f"system_prompt/{name}"
            self._start = (shared_segment(own, 0, kind.system_prompt_tokens),)

    def drafts(self, size: int) -> list[Draft]:
        """The next `size` requests."""
        kind, streams = self._kind, self._streams
        questions = kind.question.draw(streams["questions"], size).tolist()
        answers = kind.answer.draw(streams["answers"], size).tolist()
        return [
            Draft(partial(self._request, self._retrieve(), question, answer))
            for question, answer in zip(questions, answers, strict=True)
        ]

    def _retrieve(self) -> list[int]:
        kind, streams = self._kind, self._streams
        found = kind.documents.draw_distinct(streams["documents"], kind.passages)
        order = streams["order"].permutation(kind.passages)  # drawn in either case
        picks: list[int] = found[order].tolist()
        return sorted(picks) if kind.document_order == "popularity" else picks

    def _request(
        self, found: list[int], question: int, answer: int, request_id: int, time_s: float, _: int
    ) -> Request:
        prefix = (*self._start, *(self._documents[document] for document in found))
        prompt = sum(segment.tokens for segment in prefix) + question
        most = answer if self._max_total_tokens is None else self._max_total_tokens - prompt
        return Request(
            request_id=request_id,
            scheduled_s=time_s,
            prompt_tokens=prompt,
            output_tokens=min(answer, most),
            kind=self._name,
            prefix=prefix,
        )
