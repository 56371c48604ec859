from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

import workloads
from workloads.base import Request

REPOSITORY = Path(__file__).parents[2]
GROUP = REPOSITORY / "conf" / "workload"
OPTIONS = sorted(path.stem for path in GROUP.glob("*.yaml"))
ARRIVALS = sorted(path.stem for path in (GROUP / "arrivals").glob("*.yaml"))
KINDS = sorted(path.stem for path in (GROUP / "kinds").glob("*.yaml"))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    line = '{{"timestamp": {}, "input_length": 9, "output_length": 2}}\n'
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
    assert OPTIONS == ["chat", "code", "mixed", "rag", "sharegpt", "trace"]
    assert ARRIVALS == ["constant", "gamma", "poisson", "trace"]
    assert KINDS == ["chat", "code", "rag", "sharegpt"]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("arrivals", [None, *ARRIVALS])
def test_every_option_runs_with_every_arrival_process(
    option: str, arrivals: str | None, trace: str
) -> None:
    overrides = [f"+workload={option}", "workload.rate_rps=5"]
    if option == "trace":
        overrides.append(f"workload.path={trace}")
    if arrivals:
        overrides.append(f"workload/arrivals={arrivals}")
    if arrivals == "trace":
        overrides.append(f"workload.arrivals.path={trace}")
    drawn = requests(*overrides)
    assert len(drawn) >= 200
    assert drawn[0].scheduled_s == 0


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
    # the means after the clip, docs/workloads.md; standard errors about 2.1 and 3.2; 4 of them
    assert prompts == pytest.approx(156.8, abs=8.4)
    assert outputs == pytest.approx(328.5, abs=12.8)


@pytest.mark.parametrize(
    "path", sorted(GROUP.rglob("*.yaml")), ids=lambda path: str(path.relative_to(GROUP))
)
def test_a_file_says_first_what_it_is_and_is_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 22


def test_workloads_import_neither_torch_nor_hydra_nor_the_rest() -> None:
    source = "".join(path.read_text() for path in Path(workloads.__path__[0]).rglob("*.py"))
    for other in ("torch", "hydra", "omegaconf", "bench", "backends"):
        assert f"import {other}" not in source
        assert f"from {other}" not in source
