from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

import workloads
from workloads.base import Request

REPOSITORY = Path(__file__).parents[2]
GROUP = REPOSITORY / "conf" / "workload"
OPTIONS = sorted(path.stem for path in GROUP.glob("*.yaml"))
ARRIVALS = sorted(path.stem for path in (GROUP / "arrivals").glob("*.yaml"))
LENGTHS = ("prompt_tokens", "output_tokens")
KINDS = sorted(path.stem for path in (GROUP / "kinds").glob("*.yaml"))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    line = '{{"timestamp": {}, "input_length": 9, "output_length": 2, "hash_ids": []}}\n'
    path = tmp_path / "t.jsonl"
    path.write_text("".join(line.format(ms) for ms in range(0, 20_000, 100)))
    return str(path)


def build(*overrides: str) -> Any:
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        config = compose(overrides=list(overrides))
    return instantiate(config.workload, _convert_="all")


def requests(*overrides: str) -> list[Request]:
    return list(build(*overrides).requests(0))


def test_every_option_is_known_here() -> None:
    names = (
        "agent alpaca batch beam cancellations chat code mixed parallel_sampling rag sharegpt "
        "streaming summarization trace"
    )
    assert names.split() == OPTIONS
    names = "closed_loop constant diurnal gamma poisson ramp spikes steps trace"
    assert names.split() == ARRIVALS
    names = (
        "agent alpaca batch cancellations chat code conversation file rag ragpulse sharegpt "
        "streaming summarization"
    )
    assert names.split() == KINDS


@pytest.mark.parametrize(
    ("option", "arrivals"),
    [
        *((option, None) for option in OPTIONS),
        *itertools.product(("mixed", "chat", "trace"), ARRIVALS),
    ],
)
def test_every_option_and_every_arrival_process_run(
    option: str, arrivals: str | None, trace: str
) -> None:
    overrides = [f"+workload={option}"]
    if arrivals != "closed_loop":
        overrides.append("workload.rate_rps=5")
    if option == "trace":
        overrides.append(f"workload.path={trace}")
    if arrivals:
        overrides.append(f"workload/arrivals={arrivals}")
    if arrivals == "trace":
        overrides.append(f"workload.arrivals.path={trace}")
    workload = build(*overrides)
    drawn = list(itertools.islice(workload.requests(0), 1000))
    assert len(drawn) >= 200  # sessions, where there are such
    assert drawn[0].scheduled_s == 0
    assert (workload.closed_loop is not None) == (arrivals == "closed_loop")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "file"])
def test_every_kind_can_be_mixed_in(kind: str) -> None:
    workload = build(
        "+workload=mixed",
        f"+workload/kinds@workload.kinds.more={kind}",
        "workload.kinds.more.share=0.25",
        "workload.kinds.chat.share=0.35",
    )
    drawn = every_turn(list(workload.requests(0)))
    assert [each.request_id for each in drawn] == list(range(len(drawn)))
    mixed = [each for each in workload.requests(0) if each.kind == "more"]
    # about 3,000 arrivals, a quarter of them
    assert len(mixed) == pytest.approx(750, abs=4 * 24 + 30)


def test_cancellations_leave_in_three_ways_and_streaming_is_slow() -> None:
    drawn = requests("+workload=cancellations")
    left = Counter(each.client.leave.kind for each in drawn if each.client.leave)
    # 30 % of 3,327, in thirds
    assert set(left) == {"before_first_token", "in_prefill", "after_tokens"}
    assert left.total() / len(drawn) == pytest.approx(0.3, abs=4 * (0.21 / len(drawn)) ** 0.5)
    assert {each.client.tokens_per_s for each in requests("+workload=streaming")} == {5.3}


def test_papers_have_the_medians_and_tails_of_sarathi_serve() -> None:
    drawn = requests(
        "+workload=summarization",
        "workload.num_requests=20000",
        "workload.duration_s=null",
        "workload.max_total_tokens=null",
        "workload.kinds.summarization.prompt.max_tokens=100000",
    )
    prompts, outputs = ([getattr(each, name) for each in drawn] for name in LENGTHS)
    assert np.percentile(prompts, [50, 90]) == pytest.approx([7059, 12985], rel=0.025)
    assert np.percentile(outputs, [50, 90]) == pytest.approx([208, 371], rel=0.025)


def test_a_batch_is_uniform() -> None:
    drawn = requests("+workload=batch")
    assert {(each.prompt_tokens, each.output_tokens) for each in drawn} == {(1024, 128)}
    gaps = np.diff([each.scheduled_s for each in drawn])
    assert gaps == pytest.approx(np.full(len(gaps), 1 / 8))


@pytest.mark.parametrize("option", [each for each in OPTIONS if each != "trace"])
def test_a_workloads_name_is_its_option(option: str) -> None:
    assert build(f"+workload={option}").name == option


def test_burstiness_and_shares_are_changed_on_the_command_line() -> None:
    drawn = requests(
        "+workload=mixed",
        "workload/arrivals=gamma",
        "workload.arrivals.burstiness=2",
        "workload.kinds.chat.share=0",
        "workload.kinds.rag.share=0.85",
    )
    assert {each.kind for each in drawn} == {"rag", "code"}


def test_sharegpt_is_the_papers_hour() -> None:
    drawn = requests("+workload=sharegpt")
    # Poisson with mean 7,200: standard deviation 85; 4 of them
    assert len(drawn) == pytest.approx(7200, abs=340)
    assert max(each.prompt_tokens + each.output_tokens for each in drawn) <= 2048
    assert max(each.scheduled_s for each in drawn) < 3600
    prompts = sum(each.prompt_tokens for each in drawn) / len(drawn)
    outputs = sum(each.output_tokens for each in drawn) / len(drawn)
    # the published means, those after the clip; standard errors about 2.1 and 3.2; 4 of them
    assert prompts == pytest.approx(161.31, abs=8.4)
    assert outputs == pytest.approx(337.99, abs=12.8)


def every_turn(drawn: list[Request]) -> list[Request]:
    every = []
    for first in drawn:
        turn: Request | None = first
        while turn is not None:
            every.append(turn)
            turn = turn.next_turn
    return every


def mean(numbers: Iterable[float]) -> float:
    return float(np.mean(list(numbers)))


def test_alpaca_has_the_papers_means() -> None:
    drawn = requests("+workload=alpaca")
    # 30 requests/s for an hour; the means after the clip; 4 standard errors of 0.045 and 0.18
    assert len(drawn) == pytest.approx(108_000, abs=4 * np.sqrt(108_000))
    assert mean(each.prompt_tokens for each in drawn) == pytest.approx(19.31, abs=0.2)
    assert mean(each.output_tokens for each in drawn) == pytest.approx(58.45, abs=0.75)


@pytest.mark.parametrize("option", ["parallel_sampling", "beam"])
def test_sampling_and_beams_have_sharegpts_lengths(option: str) -> None:
    drawn, alone = requests(f"+workload={option}"), requests("+workload=sharegpt")
    assert {each.branches for each in drawn} == {4}
    assert {each.survivors is None for each in drawn} == {option != "beam"}
    for lengths in ("prompt_tokens", "output_tokens"):
        one, other = ([getattr(each, lengths) for each in some] for some in (drawn, alone))
        error = np.hypot(np.std(one) / np.sqrt(len(one)), np.std(other) / np.sqrt(len(other)))
        assert mean(one) == pytest.approx(mean(other), abs=4 * error)


def test_chat_has_the_means_of_lmsys_chat_1m() -> None:
    drawn = requests("+workload=chat", "workload.duration_s=6000", "workload.max_total_tokens=null")
    every = every_turn(drawn)
    # geometric of mean 2: variance 2; about 16,600 sessions
    assert len(every) / len(drawn) == pytest.approx(2.0, abs=4 * np.sqrt(2 / len(drawn)))
    messages = [each.prompt_tokens - sum(part.tokens for part in each.prefix) for each in every]
    # means after the cuts, docs/workloads.md; 4 standard errors, of deviations below 90 and 215
    assert mean(messages) == pytest.approx(68.1, abs=4 * 90 / np.sqrt(len(every)))
    answers = mean(each.output_tokens for each in every)
    assert answers == pytest.approx(210.2, abs=4 * 215 / np.sqrt(len(every)))


@pytest.mark.parametrize(("option", "longest"), [("chat", 4096), ("agent", 8192)])
def test_no_turn_is_longer_than_the_smallest_model_meant(option: str, longest: int) -> None:
    every = every_turn(requests(f"+workload={option}"))
    assert max(each.prompt_tokens + each.output_tokens for each in every) <= longest


def test_agents_have_long_shared_prefixes_and_short_answers() -> None:
    every = every_turn(requests("+workload=agent"))
    assert len({each.prefix[0] for each in every}) == 4
    prompts = sum(each.prompt_tokens for each in every)
    assert sum(part.tokens for each in every for part in each.prefix) / prompts > 0.95
    assert prompts > 50 * sum(each.output_tokens for each in every)


def test_rag_has_the_prompts_of_ragpulse_and_the_skew_of_ragcache() -> None:
    drawn = requests("+workload=rag", "workload.duration_s=3000")
    prompts = [each.prompt_tokens for each in drawn]
    # mean 3163, cv 0.107 (docs/workloads.md); the popular documents' fixed lengths move it a bit
    assert mean(prompts) == pytest.approx(3163, rel=0.04)
    assert np.std(prompts) / mean(prompts) == pytest.approx(0.107, abs=0.015)
    weights = np.arange(1.0, 8303.0) ** -0.97
    assert weights[: round(0.03 * 8302)].sum() / weights.sum() == pytest.approx(0.60, abs=0.01)


def test_the_demos_traffic_is_what_it_was() -> None:
    # Recorded before kinds could share: no new draw may move an old one.
    drawn = requests("+workload=mixed")
    assert drawn[:4] == [
        Request(0, 0.0, 1186, 129, "chat"),
        Request(1, 0.153595311, 14, 138, "chat"),
        Request(2, 0.158777539, 3171, 91, "rag"),
        Request(3, 0.616509328, 1665, 72, "chat"),
    ]
    rows = [
        (each.request_id, each.scheduled_s, each.prompt_tokens, each.output_tokens, each.kind)
        for each in drawn
    ]
    digest = "40b8dd376e4080b186aea187d6cb89b1c0618666dc90151e6fc3d37b5cecd1fb"
    assert hashlib.sha256(repr(rows).encode()).hexdigest() == digest


def test_a_files_lengths_take_the_place_of_a_kinds(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("prompt_tokens,output_tokens\n10,7\n20,8\n2000,9\n")
    drawn = requests(
        "+workload=sharegpt",
        "workload/kinds@workload.kinds.sharegpt=file",
        f"workload.kinds.sharegpt.pairs.path={path}",
    )
    assert {(each.prompt_tokens, each.output_tokens) for each in drawn} == {(10, 7), (20, 8)}


@pytest.mark.parametrize(
    "path", sorted(GROUP.rglob("*.yaml")), ids=lambda path: str(path.relative_to(GROUP))
)
def test_a_file_says_first_what_it_is_and_is_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 26


def test_workloads_import_neither_torch_nor_hydra_nor_the_rest() -> None:
    source = "".join(path.read_text() for path in Path(workloads.__path__[0]).rglob("*.py"))
    for other in ("torch", "hydra", "omegaconf", "bench", "backends"):
        assert f"import {other}" not in source
        assert f"from {other}" not in source
