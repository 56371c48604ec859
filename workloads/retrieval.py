"""Retrieval-augmented generation: questions behind passages that other questions need too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workloads.arrivals.base import Arrivals, seconds
from workloads.base import Request, Segment
from workloads.lengths.base import Lengths, check_lengths
from workloads.schedule import Schedule
from workloads.settings import MAX_TOKENS, count, refusal, text
from workloads.shared_texts import SharedTexts, check_texts, shared_segment
from workloads.streams import stream

_ORDERS = ("relevance", "popularity")


class Retrieval:
    """Requests whose prompt is a shared system prompt, `passages` different documents of a corpus,
    and a question of their own.

    `document_order` relevance puts the documents in random order: how well one suits a question
    does not depend on how popular it is. popularity puts the most popular first, as systems do
    that reorder for their cache's sake; the documents are the same.

    Starts and ends as workloads/schedule.py says. `max_total_tokens` bounds prompt + output: the
    output is cut to fit. Documents, their order, questions and answers draw from streams of their
    own. Raises WorkloadError for a setting that cannot be used.
    """

    def __init__(
        self,
        *,
        arrivals: Arrivals,
        documents: SharedTexts,
        passages: int,
        question: Lengths,
        answer: Lengths,
        system_prompt_tokens: int = 0,
        document_order: str = "relevance",
        rate_rps: float | None = None,
        num_requests: int | None = None,
        duration_s: float | None = None,
        max_total_tokens: int | None = None,
        name: str = "rag",
    ) -> None:
        self.name = text("workload.name", name, "a name", "give one such as rag")
        self._schedule = Schedule(
            arrivals=arrivals,
            rate_rps=rate_rps,
            num_requests=num_requests,
            duration_s=duration_s,
        )
        self._texts = check_texts("workload.documents", documents)
        self._documents = self._texts.segments("documents")
        fix = "change it, or workload.documents.count"
        key = "workload.passages"
        self._passages = count(key, passages, 1, self._texts.count, "documents", fix)
        self._question = check_lengths("workload.question", question)
        self._answer = check_lengths("workload.answer", answer)
        key = "workload.system_prompt_tokens"
        fix = "0 is no system prompt"
        self._system_prompt = count(key, system_prompt_tokens, 0, MAX_TOKENS, "tokens", fix)
        if document_order not in _ORDERS:
            fix = "relevance is as retrieved, popularity the most popular first"
            allowed = " or ".join(_ORDERS)
            raise refusal("workload.document_order", document_order, allowed, fix)
        self._popular_first = document_order == "popularity"
        self._max_total_tokens = self._check_max_total_tokens(max_total_tokens)

    def requests(self, seed: int) -> Iterator[Request]:
        """The requests of one run, drawn as they are asked for."""
        names = ("documents", "order", "questions", "answers")
        streams = {name: stream(seed, f"retrieval/{name}") for name in names}
        return self._generate(streams, seconds(self._schedule.times_ns(seed)))

    def _generate(
        self, streams: dict[str, np.random.Generator], times_s: Iterator[float]
    ) -> Iterator[Request]:
        start: tuple[Segment, ...] = ()
        if self._system_prompt:
            start = (shared_segment("system_prompt", 0, self._system_prompt),)
        for request_id, time_s in enumerate(times_s):
            found = self._retrieve(streams)
            prefix = (*start, *(self._documents[document] for document in found))
            question = int(self._question.draw(streams["questions"], 1)[0])
            answer = int(self._answer.draw(streams["answers"], 1)[0])
            prompt = sum(segment.tokens for segment in prefix) + question
            yield Request(
                request_id=request_id,
                scheduled_s=time_s,
                prompt_tokens=prompt,
                output_tokens=self._fit(prompt, answer),
                kind=self.name,
                prefix=prefix,
            )

    def _retrieve(self, streams: dict[str, np.random.Generator]) -> list[int]:
        found = self._texts.draw_distinct(streams["documents"], self._passages)
        order = streams["order"].permutation(self._passages)  # drawn in either case
        return sorted(found.tolist()) if self._popular_first else found[order].tolist()

    def _fit(self, prompt: int, answer: int) -> int:
        return min(answer, (self._max_total_tokens or prompt + answer) - prompt)

    def _check_max_total_tokens(self, value: int | None) -> int | None:
        if value is None:
            return None
        documents = self._passages * self._texts.lengths.max_tokens
        least = self._system_prompt + documents + self._question.max_tokens + 1
        fix = "the longest prompt is to leave an output: raise it, or shorten workload.question"
        return count("workload.max_total_tokens", value, least, MAX_TOKENS, "tokens", fix)
