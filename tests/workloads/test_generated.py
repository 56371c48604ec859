from __future__ import annotations

import hashlib
import inspect
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.other_process import said_elsewhere
from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.gamma import GammaArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.arrivals.trace import TraceArrivals
from workloads.base import Request, WorkloadError
from workloads.generated import GeneratedWorkload
from workloads.kinds.single import SingleTurn
from workloads.lengths.empirical import PairsFromFile
from workloads.lengths.fixed import FixedLength
from workloads.lengths.gamma import GammaLengths
from workloads.lengths.lognormal import LognormalLengths


def make_kinds(**shares: float) -> dict[str, SingleTurn]:
    lengths = {
        "chat": (GammaLengths(mean_tokens=900, cv=1, max_tokens=4000), FixedLength(tokens=200)),
        "code": (FixedLength(tokens=50), LognormalLengths(mean_tokens=30, cv=2, max_tokens=900)),
    }
    shares = shares or {"chat": 0.7, "code": 0.3}
    return {
        name: SingleTurn(share=share, prompt=lengths[name][0], output=lengths[name][1])
        for name, share in shares.items()
    }


def make(**changed: Any) -> GeneratedWorkload:
    settings = {"kinds": make_kinds(), "arrivals": PoissonArrivals(), "rate_rps": 4.0}
    return GeneratedWorkload(**{"num_requests": 10_000, **settings, **changed})


def draw(seed: int = 0, **changed: Any) -> list[Request]:
    return list(make(**changed).requests(seed))


def lengths_of(requests: list[Request], kind: str) -> list[tuple[int, int]]:
    return [(each.prompt_tokens, each.output_tokens) for each in requests if each.kind == kind]


def digest(requests: list[Request]) -> str:
    return hashlib.sha256(repr(requests).encode()).hexdigest()


def test_requests_are_numbered_and_in_order_of_time() -> None:
    requests = draw()
    assert [each.request_id for each in requests] == list(range(10_000))
    times = [each.scheduled_s for each in requests]
    assert times[0] == 0
    assert times == sorted(times)
    assert times[-1] == pytest.approx(9_999 / 4, rel=4 / math.sqrt(9_999))


def test_kinds_come_in_their_shares() -> None:
    counts = Counter(each.kind for each in draw())
    # binomial(10,000, 0.7): standard deviation 46; 4 of them
    assert counts["chat"] == pytest.approx(7000, abs=184)
    assert counts["chat"] + counts["code"] == 10_000


def test_a_share_of_zero_drops_a_kind() -> None:
    assert {each.kind for each in draw(kinds=make_kinds(chat=0, code=1))} == {"code"}


def test_the_end_is_whichever_limit_comes_first() -> None:
    paced = {"arrivals": ConstantArrivals()}  # every 0.25 s
    assert len(draw(num_requests=7, **paced)) == 7
    assert len(draw(num_requests=None, duration_s=2.0, **paced)) == 8  # the one at 2 s is outside
    assert len(draw(num_requests=None, duration_s=2.001, **paced)) == 9
    assert len(draw(num_requests=3, duration_s=2.0, **paced)) == 3
    assert len(draw(num_requests=9000, duration_s=2000.0, **paced)) == 8000
    assert len(draw(num_requests=4096 + 1)) == 4097


def test_the_output_is_cut_to_the_total() -> None:
    free, cut = draw(), draw(max_total_tokens=4100)
    assert max(each.prompt_tokens + each.output_tokens for each in free) > 4100
    for one, other in zip(free, cut, strict=True):
        assert other.prompt_tokens == one.prompt_tokens
        assert other.output_tokens == min(one.output_tokens, 4100 - one.prompt_tokens)


def test_other_arrivals_leave_kinds_and_lengths_alone() -> None:
    one, other = draw(), draw(arrivals=GammaArrivals(burstiness=0.3), rate_rps=9)
    for before, after in zip(one, other, strict=True):
        assert (before.kind, before.prompt_tokens) == (after.kind, after.prompt_tokens)
        assert before.output_tokens == after.output_tokens


def test_other_shares_leave_each_kinds_lengths_alone() -> None:
    one, other = draw(), draw(kinds=make_kinds(chat=0.2, code=0.8))
    assert [each.scheduled_s for each in one] == [each.scheduled_s for each in other]
    for kind in ("chat", "code"):
        pairs = zip(lengths_of(one, kind), lengths_of(other, kind), strict=False)
        assert all(before == after for before, after in pairs)


def test_other_prompts_of_one_kind_leave_all_else_alone() -> None:
    kinds = make_kinds()
    longer = SingleTurn(share=0.7, prompt=FixedLength(tokens=3), output=kinds["chat"].output)
    one, other = draw(), draw(kinds={**kinds, "chat": longer})
    assert lengths_of(one, "code") == lengths_of(other, "code")
    assert [each.output_tokens for each in one] == [each.output_tokens for each in other]


def test_prompts_and_outputs_are_independent() -> None:
    lengths = GammaLengths(mean_tokens=500, cv=1, max_tokens=10**6)
    requests = draw(kinds={"same": SingleTurn(prompt=lengths, output=lengths)})
    prompts, outputs = zip(*lengths_of(requests, "same"), strict=True)
    # the correlation of 10,000 independent pairs has standard deviation 0.01; 4 of them
    assert abs(np.corrcoef(prompts, outputs)[0, 1]) < 0.04


def test_a_seed_gives_the_same_requests_in_another_process() -> None:
    assert said_elsewhere(__file__, "digest(t.draw(0))", 123) == digest(draw(0))
    assert digest(draw(1)) != digest(draw(0))


def test_a_seed_gives_these_requests_on_every_machine() -> None:
    # Recorded, not derived: a change of numpy's streams, or of ours, must not pass unseen.
    assert draw(0)[:3] == [
        Request(0, 0.0, 1248, 200, "chat"),
        Request(1, 0.191994139, 310, 200, "chat"),
        Request(2, 0.198471925, 4000, 200, "chat"),
    ]


def test_nothing_draws_from_or_seeds_global_randomness() -> None:
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    draw()
    assert np.random.get_state()[1].tolist() == before  # type: ignore[union-attr]


def test_a_traces_arrivals_carry_generated_lengths_to_the_traces_end(tmp_path: Path) -> None:
    line = '{{"timestamp": {}, "input_length": 1, "output_length": 1, "hash_ids": []}}\n'
    path = tmp_path / "t.jsonl"
    path.write_text("".join(line.format(ms) for ms in (0, 100, 2000)))
    arrivals = TraceArrivals(path=str(path))
    requests = draw(arrivals=arrivals, rate_rps=None, num_requests=None)
    assert [each.scheduled_s for each in requests] == [0, 0.1, 2.0]
    assert draw()[2].prompt_tokens == requests[2].prompt_tokens


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rate_rps": -1}, r"^workload\.rate_rps is -1; it must be a number from 0\.0001 to"),
        ({"rate_rps": None}, r"^workload\.rate_rps is null; .* set workload\.rate_rps=5"),
        ({"num_requests": 2.5}, r"^workload\.num_requests is 2\.5"),
        ({"num_requests": None}, r"^workload\.duration_s is null"),
        ({"duration_s": 0}, r"^workload\.duration_s is 0"),
        ({"name": ""}, r"^workload\.name is ''"),
        ({"arrivals": "gamma"}, r"^workload\.arrivals is 'gamma'.*workload/arrivals="),
        ({"arrivals": None}, r"^workload\.arrivals is null"),
        ({"kinds": {}}, r"^workload\.kinds is {}"),
        ({"kinds": {"chat": 3}}, r"^workload\.kinds\.chat is 3"),
        ({"kinds": make_kinds(chat=0.7)}, r"share is 0\.7; it must be 1; .*\(chat 0\.7\)"),
        ({"kinds": make_kinds(chat=-1, code=2)}, r"^workload\.kinds\.chat\.share is -1"),
        ({"max_total_tokens": 4000}, r"^workload\.max_total_tokens is 4000; .* from 4,001 to"),
        (
            {"kinds": {"a": SingleTurn(prompt=512, output=FixedLength(tokens=1))}},  # type: ignore[arg-type]
            r"^workload\.kinds\.a\.prompt is 512; .*FixedLength, tokens: 512",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        make(**changed)


def test_a_seed_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(WorkloadError, match="seed is -1"):
        make().requests(-1)


@pytest.mark.parametrize("made", [GeneratedWorkload, SingleTurn])
def test_arguments_are_by_keyword_only(made: type) -> None:
    parameters = list(inspect.signature(made.__init__).parameters.values())[1:]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}


def test_what_was_read_of_files_is_told_by_setting(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,10,5\n"
                    "2023-11-16 18:15:47,x,5\n2023-11-16 18:15:48,20,5\n")  # fmt: skip
    kind = SingleTurn(pairs=PairsFromFile(path=str(path), on_bad_row="skip"))
    arrivals = TraceArrivals(path=str(path), on_bad_row="skip")
    facts = make(kinds={"one": kind}, arrivals=arrivals, rate_rps=None).trace_facts()
    assert set(facts) == {"workload.arrivals", "workload.kinds.one.pairs"}
    assert {each["skipped_rows"] for each in facts.values()} == {1}
    assert make().trace_facts() == {}
