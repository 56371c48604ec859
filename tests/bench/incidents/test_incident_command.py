"""`fragbench incident` on folders made by hand: what it says follows the numbers in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cli import main
from bench.incidents.followed import OURS_ALONE
from bench.incidents.rules import Layer
from tests.bench.report.conftest import run_writer
from tests.refusals import check_refused

MIB = 1 << 20
OOM = (
    "CUDA out of memory. Tried to allocate 26.00 MiB. GPU 0 has a total capacity of 40.00 GiB of "
    "which 16.00 MiB is free. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  See documentation for Memory Management"
)


def incident(layer: str | None, kind: str = "reserve_refused", **changes: Any) -> dict[str, Any]:
    """Of a budget of 100 MiB half is live, in 50 tokens; of the card 10 MiB are free."""
    made: dict[str, Any] = {
        "kind": kind, "layer": layer, "wanted_bytes": 20 * MIB, "needed_bytes": 15 * MIB,
        "tried_bytes": None, "error": None, "first_s": 10.0, "last_s": 20.0, "refusals": 3,
        "active_sequences": 4, "waiting": 2, "live_tokens": 50, "kv_budget_bytes": 100 * MIB,
        "usable_bytes": 100 * MIB, "token_blocks_bytes": 52 * MIB,
        "held_bytes": 90 * MIB, "token_states_bytes": 50 * MIB, "reservation_bytes": 30 * MIB,
        "internal_bytes": 10 * MIB, "rounding_bytes": 2 * MIB, "cached_bytes": 0,
        "free_bytes": 8 * MIB, "kv_pooled": False, "driver_free_bytes": 4 * MIB,
        "allocated_bytes": 194 * MIB, "reserved_bytes": 200 * MIB, "largest_free_bytes": 4 * MIB,
    }  # fmt: skip
    if kind in ("reserve_refused", "extend_refused"):
        made |= {"request_id": 7, "wanted_tokens": 15}
    return made | changes


def write(
    root: Path, name: str, *incidents: dict[str, Any], config: str = "", **facts: Any
) -> Path:
    folder = run_writer(root)(name, "contiguous", **({"incidents": len(incidents)} | facts))
    lines = "".join(json.dumps(each) + "\n" for each in incidents)
    (folder / "incidents.jsonl").write_text(lines)
    with (folder / "config.yaml").open("a") as file:
        file.write(config)
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["incident", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_report_says_what_when_which_layer_and_who_owns_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incidents = [
        incident("kv_policy", first_s=30.0, last_s=31.0, waited_s=1.0),
        incident("kv_policy", first_s=5.0, last_s=6.0, waited_s=9.0),
        incident("allocator", refusals=1, waited_s=0.5, error=OOM, tried_bytes=26 * MIB),
    ]
    # 100 requests at 2 a second: 50 s.
    text = said(capsys, write(tmp_path, "a", *incidents), "owner.inference=serving")
    assert "3 incidents, 7 refusals: 3 requests waited at admission. The run completed." in text
    assert "- **Layer:** kv_policy in 2 of 3 incidents (owner: serving)\n" in text
    assert "| allocator: largest free block | 20.0 % of what was asked for |" in text
    assert "first at 5.0 s, last at 31.0 s of 50.0 s on the run's clock, 216.0 an hour" in text
    assert "| kv_policy | 2 | 6 | serving |" in text
    assert "| allocator | 1 | 1 | platform |" in text
    assert text.index("## kv_policy") < text.index("## allocator"), "the commonest comes first"
    assert "(request 7) at 5.0 s: 20.0 MiB wanted, 3 refusals, waited 9.0 s" in text
    assert "Tried to allocate 26.00 MiB. GPU 0 has a total capacity of 40.00 GiB" in text
    assert "try setting" not in text
    assert "| live tokens | 50 (50.0 % of the KV budget) | live_tokens" in text
    assert "| free for it | 10.0 MiB | usable_bytes - held_bytes |" in text
    assert "30.0 % of the budget is held and waits for tokens that come later" in text


def advice(capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    return said(capsys, folder).partition("**What to change**")[2]


def test_capacity_is_short_of_so_many_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """50 tokens of 1 MiB in blocks of 52 MiB and 60 MiB more, of 100: 12 tokens too many."""
    folder = write(tmp_path, "a", incident("capacity", needed_bytes=60 * MIB))
    text = advice(capsys, folder)
    assert "12 tokens more in the worst case" in text
    assert "Allocator settings, emptying the cache and restarts: all free memory in one" in text
    assert "live tokens are 50.0 % of the budget" in text
    assert "the tails of the last ones at most, 2.0 %" in text


def test_what_the_card_has_no_room_for_is_no_matter_of_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = advice(capsys, write(tmp_path, "a", incident("capacity", "activation_refused")))
    assert text.split("\n\n")[1].startswith("- Make steps smaller")
    assert "15.0 MiB were needed, 10.0 MiB free, and all KV memory beside that is" in text


def test_a_pool_is_not_advised_to_be_a_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holes = incident("allocator", "activation_refused", kv_pooled=True, tried_bytes=20 * MIB)
    text = advice(capsys, write(tmp_path, "a", holes))
    assert "backend=" not in text
    assert "PyTorch released all that nothing lives in" in text


def test_a_source_lacks_what_its_limit_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """15 MiB for a limit that left 6: the driver's 10 are not the source's."""
    config = "utilization: 0.9\nkv_budget: 12GiB\n"
    source = incident("workspace", "source_refused", source="lora", headroom_left_bytes=6 * MIB)
    text = said(capsys, write(tmp_path, "a", source, config=config))
    assert "| free for it | 6.0 MiB | headroom_left_bytes |" in text
    assert "KV memory: lower utilization." in text


@pytest.mark.parametrize(
    ("usable", "held_back", "advised"),
    [
        (300, 200, "utilization=0.82 in place of 0.9 gives it"),
        (100, 0, "utilization=0.81 in place of 0.9 and a kv_budget lower by 9.0 MiB gives it"),
        (104, 4, "utilization=0.81 in place of 0.9 and a kv_budget lower by 5.8 MiB gives it"),
        (9, 0, "beside KV memory: a larger gpu."),
    ],
)
def test_beside_a_budget_that_is_set_utilization_says_what_is_left(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    usable: int,
    held_back: int,
    advised: str,
) -> None:
    """Of 100 MiB that are not held back 90 are used at 0.9; 90 / (100 + 9) leaves 9 more. Where
    less than that is held back the budget gives the rest: of 100 MiB 81 are used then; of 104, 5
    less, 85 / 104 = 0.817, and 90 - 0.81 x 104 = 5.76."""
    config = "utilization: 0.9\nkv_budget: 12GiB\n"
    source = incident("workspace", "source_refused", source="lora", headroom_left_bytes=6 * MIB)
    folder = write(tmp_path, "a", source, config=config)
    memory = {"usable_bytes": usable * MIB, "held_back_bytes": held_back * MIB}
    (folder / "environment.json").write_text(json.dumps({"memory": memory}))
    assert advised in said(capsys, folder)


def test_a_policy_that_wastes_little_is_told_to_be_near_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waste = {"token_states_bytes": 96 * MIB, "reservation_bytes": MIB, "internal_bytes": 2 * MIB}
    near = incident("kv_policy", wanted_bytes=MIB, needed_bytes=MIB, kv_pooled=True, **waste)
    text = advice(capsys, write(tmp_path, "a", near))
    assert "Take smaller blocks or pages" in text
    assert "Do as for capacity as well: live tokens are 96.0 % of the budget already" in text
    far = incident("kv_policy", kv_pooled=True)
    assert "Do as for capacity" not in advice(capsys, write(tmp_path, "b", far))


def test_a_copy_is_more_than_what_is_held_for_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = incident("kv_policy", "extend_refused", wanted_bytes=60 * MIB, needed_bytes=MIB)
    text = advice(capsys, write(tmp_path, "a", copy))
    assert "60.0 MiB were wanted for 1.0 MiB of tokens" in text


@pytest.mark.parametrize(
    ("conf", "first"),
    [("", "- Set alloc_conf=expandable"), ("expandable_segments:True", "- Keep KV memory out of")],
)
def test_an_allocator_setting_is_advised_where_it_is_not_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], conf: str, first: str
) -> None:
    config = f"alloc_conf: '{conf}'\n"
    holes = incident("allocator", wanted_bytes=9 * MIB)
    text = advice(capsys, write(tmp_path, "a", holes, config=config))
    assert text.split("\n\n")[1].startswith(first)
    assert "10.0 MiB were free, more than the 9.0 MiB that were needed" in text


def test_workspace_gets_the_utilization_that_leaves_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """10 MiB are free and 15 needed: 5 of 1,000 MiB are half a percent, and 0.945 becomes 0.94."""
    step = incident("workspace", "activation_refused", preempted_request=None, ended_run=True)
    folder = write(tmp_path, "a", step, config="utilization: 0.945\n", status="failed", cause="oom")
    environment = {"memory": {"usable_bytes": 1000 * MIB}}
    (folder / "environment.json").write_text(json.dumps(environment))
    text = said(capsys, folder)
    assert "The run failed: oom." in text
    assert "workspace in 1 of 1 incidents (owner: inference); workspace where the run ended" in text
    assert "20.0 MiB wanted, 3 refusals, the run ended there" in text
    assert "| free for it | 10.0 MiB | driver_free_bytes + reserved_bytes - allocated_bytes" in text
    assert "utilization=0.94 in place of 0.945 gives it the 5.0 MiB" in text


def write_vllm(root: Path, found: dict[str, Any], config: str = "") -> Path:
    """A run that vLLM died in, on 24 GiB with a utilization of 0.99."""
    cause = f"vLLM ran out of memory in a step: {found['error']}"
    ended = {"engine": "vllm", "status": "failed", "cause": cause}
    folder = write(root, "vllm", found, config=f"utilization: 0.99\n{config}", **ended)
    memory = {"usable_bytes": 24 << 30, "held_back_bytes": 0}
    (folder / "environment.json").write_text(json.dumps({"memory": memory}))
    return folder


DIED = {
    "wanted_bytes": 448 * MIB, "needed_bytes": 448 * MIB, "tried_bytes": 448 * MIB,
    "driver_free_bytes": 290 * MIB, "reserved_bytes": 24286 * MIB, "allocated_bytes": 23731 * MIB,
    "error": OOM, "kv_pooled": True, "preempted_request": None, "ended_run": True,
}  # fmt: skip


def test_a_step_that_vllm_died_of_lacks_a_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """448 MiB in one piece, of which the driver had 290: 158 of 24,576 are 0.64 %, and 0.9836
    becomes 0.98."""
    died = write_vllm(tmp_path, incident("allocator", "activation_refused", **DIED))
    text = said(capsys, died)
    assert "GPU 0 has a total capacity of 40.00 GiB of which 16.00 MiB is free.\n" in text
    assert "try setting" not in text
    assert "of 50.0 s on the run's clock\n" in text, "one incident has no rate"
    first, second = text.partition("**What to change**")[2].split("\n\n")[1].splitlines()
    assert first.startswith("- Set alloc_conf=expandable_segments:True")
    assert "utilization=0.98 in place of 0.99 gives it the 158.0 MiB" in second


@pytest.mark.parametrize("layer", Layer)
@pytest.mark.parametrize("kind", ["extend_refused", "activation_refused"])
def test_nothing_is_advised_that_vllm_does_not_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layer: Layer, kind: str
) -> None:
    text = advice(capsys, write_vllm(tmp_path, incident(layer, kind, **DIED)))
    assert "- " in text
    assert not [setting for setting in OURS_ALONE if setting in text]


VALUES = ("4096", "true", "2", "int4", "sequence")


@pytest.mark.parametrize(("setting", "value"), [*zip(OURS_ALONE, VALUES, strict=True)])
def test_vllm_does_refuse_what_is_not_advised(
    setting: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["run", "engine=vllm", "device=virtual", f"{setting}={value}"]
    check_refused(asked, [setting], capsys)


def test_several_runs_are_several_reports_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    write(runs, "a", incident("capacity"))
    write(runs, "b")
    write(runs, "c", incident(None), {"kind": 5}, incident("of a later version"))
    text = said(capsys, runs, f"out={out}")
    assert text.count("# Allocation failures in ") == 2
    assert "No allocation failed in backend=contiguous,workload=mixed." in text
    assert "| not_known | 3 |" in text
    assert "2 requests waited at admission, 1 refused" in text
    assert (out / "incident.md").read_text() == text
    told = json.loads((out / "incident.json").read_text())["runs"]
    assert [run["incidents"] for run in told] == [1, 0, 3]
    assert told[0]["layers"]["capacity"]["owner"] == "application"
    assert told[2]["layers"]["not_known"]["owner"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "needs a folder"),
        (["out=there"], "needs a folder"),
        (["nowhere"], "incident: nowhere is not a folder"),
        (["{empty}"], "holds no run"),
        (["{run}", "owner.nobody=me"], "'owner.nobody=me' is no setting: use owner.platform="),
        (["{run}", "owner.platform="], "owner.platform has no value: give it one, as in"),
        (["{run}", "out={run}/summary.json/x"], "cannot be written: Not a directory"),
    ],
)
def test_wrong_input_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    run = write(tmp_path, "a", incident("capacity"))
    given = [each.format(empty=empty, run=run) for each in arguments]
    assert main(["incident", *given]) == 2
    assert sentence in capsys.readouterr().err


def test_damaged_lines_are_read_as_far_as_they_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {"layer": ["x"], "refusals": None, "waited_s": float("nan")}
    half = incident("capacity", wanted_bytes="much", first_s=None)
    folder = write(tmp_path, "a", incident("capacity"), odd, half)
    with (folder / "incidents.jsonl").open("a") as file:
        file.write('{"kind": "reserve_re')
    text = said(capsys, folder, f"out={tmp_path / 'out'}")
    assert "3 incidents, 7 refusals" in text
    assert "- **Files:** incidents.jsonl: 1 line(s) could not be read" in text


@pytest.mark.parametrize(
    ("lost", "counted", "sentence"),
    [
        ("summary.json", 0, "No allocation failed so far in"),
        ("incidents.jsonl", 0, "Not known for want of incidents.jsonl:"),
        ("", 3, "Not known for want of incidents.jsonl:"),
        ("", 0, "No allocation failed in"),
    ],
)
def test_no_line_is_no_failure_only_where_the_files_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str, counted: int, sentence: str
) -> None:
    folder = write(tmp_path, "a", incidents=counted)
    if lost:
        (folder / lost).unlink()
    assert said(capsys, folder).startswith(sentence)


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "usage: fragbench incident DIR" in said(capsys, "--help")
