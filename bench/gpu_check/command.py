"""`fragbench gpu-check`: in under 10 minutes, what only a machine with a GPU can show."""

from __future__ import annotations

import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bench.device.probe import probe
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.gpu_check import kernels, matrix, replay, table, tokens, vllm
from bench.gpu_check.card import REAL, Card, card_from, virtual_twin
from bench.gpu_check.part import Part, Task, Verdict
from bench.gpu_check.processes import Jobs
from bench.kernels.virtual import on_virtual_gpu
from bench.key_values import read_key_values
from bench.metrics.records import write_json

NAME = "gpu-check"
FAILED = 1
WORDS = {True: "PASS", False: "FAIL", None: "SKIP"}
TOTAL_S = 560.0
"""For all, the start included; what hangs then gets some seconds more to be ended."""
CARD_S = 60.0

PARTS = {
    "kernels": Part(kernels.check, 100, "the Triton kernels against attention in float64"),
    "replay": Part(replay.check, 90, "one allocation sequence on the card and a virtual GPU"),
    "tokens": Part(tokens.check, 70, "greedy tokens of all backends, and of the CPU"),
    "table": Part(table.check, 60, "fragbench kernels, short"),
    "matrix": Part(matrix.check, 145, "fragbench matrix device=cuda, short, and its report"),
    "vllm": Part(vllm.check, 420, "the real vLLM beside one on a virtual GPU, and a calibration"),
}
EXAMPLES = {"out": "results/mine", "parts": ",".join(PARTS)}

USAGE = """\
usage: fragbench gpu-check [parts=NAME,NAME] [out=DIR]

Checks on this machine's NVIDIA GPU what ran without one: in under 10 minutes, one line a part.
A part that fails does not stop the others; the exit code is then 1. Without an environment that
has vLLM its part is skipped.

{parts}

  out=DIR      folder for the results; a dated one under results/ otherwise
  parts=...    some of the above, in the order given; all otherwise"""


class _Asked(NamedTuple):
    out: str | None
    parts: list[str]


def main(argv: list[str]) -> int:
    """`fragbench gpu-check`: 1 if a part failed, else 0. Raises SettingError for a wrong setting
    and where there is no GPU."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(_help())
        return 0
    began = time.monotonic()
    asked = _parse(argv)
    _require_gpu()
    _, folder = compose_cells([f"out={asked.out}"] if asked.out else [], ["fragbench", NAME, *argv])
    card = _find_card()
    folder.mkdir(parents=True, exist_ok=True)
    _say(f"{NAME} on {card}. Results: {folder}")
    task = Task(folder, card, REAL, virtual_twin(card), _say)
    verdicts = run_parts(asked.parts, task, began)
    return FAILED if any(verdict.passed is False for verdict in verdicts.values()) else 0


def run_parts(names: Sequence[str], task: Task, began: float) -> dict[str, Verdict]:
    """One after the other, whatever becomes of each, until TOTAL_S after `began`; lines and
    gpu_check.json as they go."""
    verdicts: dict[str, Verdict] = {}
    lines = []
    for name in names:
        start = time.monotonic()
        task.say(f"-- {name}: {PARTS[name].help}")
        verdicts[name] = _checked(name, task, began + TOTAL_S - start)
        lines.append(_line(name, verdicts[name], time.monotonic() - start))
        task.say(lines[-1])
        _write(task, verdicts, lines)
    task.say(f"-- {_count(verdicts.values())}, {time.monotonic() - began:.0f} s in all")
    for line in lines:
        task.say(line)
    return verdicts


def _checked(name: str, task: Task, left_s: float) -> Verdict:
    part = PARTS[name]
    if left_s <= 0:
        return Verdict(False, f"no time was left of {TOTAL_S:.0f} s: parts={name} has it alone")
    try:
        return part.check(task, min(part.limit_s, left_s))
    except Exception as error:  # the next part may find the card in order
        (task.folder / f"{name}.error").write_text(traceback.format_exc(), encoding="utf-8")
        sentence = " ".join(str(error).split()) or type(error).__name__
        return Verdict(False, f"it could not be checked: {sentence}")


def _line(name: str, verdict: Verdict, seconds: float) -> str:
    return f"{WORDS[verdict.passed]} {name} ({seconds:.1f} s): {verdict.figures}"


def _count(verdicts: Collection[Verdict]) -> str:
    outcomes = [verdict.passed for verdict in verdicts]
    skipped = f", {outcomes.count(None)} skipped" if None in outcomes else ""
    return f"{outcomes.count(True)} of {len(outcomes)} parts passed{skipped}"


def _write(task: Task, verdicts: Mapping[str, Verdict], lines: Sequence[str]) -> None:
    card = {name: getattr(task.card, name) for name in Card.__slots__}
    parts = {name: verdict._asdict() for name, verdict in verdicts.items()}
    write_json(task.folder / "gpu_check.json", {"card": card, "parts": parts})
    (task.folder / "gpu_check.txt").write_text("\n".join([str(task.card), *lines, ""]))


def _find_card() -> Card:
    """Raises SettingError where PyTorch cannot use it."""
    with Jobs(REAL, CARD_S, _say) as jobs:
        (found,) = jobs.run_all("bench.gpu_check.card_job:read_card", [({}, "")])
    if found.status != "ok":
        raise SettingError(
            f"{NAME}: PyTorch cannot use this machine's GPU ({found.cause}): update the NVIDIA "
            "driver, or install a PyTorch build that knows the card."
        )
    return card_from(found.result)


def _require_gpu() -> None:
    """Raises SettingError where there is nothing to check."""
    if on_virtual_gpu():
        raise SettingError(
            f"{NAME} compares a real GPU with the virtual one, and this process is on the virtual "
            "one: start it outside `fragbench exec`."
        )
    machine = probe()
    if not machine.gpu_names:
        raise SettingError(
            f"{NAME} needs an NVIDIA GPU and its driver, and none was found, so nothing was run: "
            "start it on a machine that has one."
        )
    if machine.torch_cuda is None:
        raise SettingError(
            f"{NAME} needs a CUDA build of PyTorch and the installed one is CPU only, so nothing "
            "was run: install PyPI's (`pip install torch`)."
        )


def _parse(argv: Sequence[str]) -> _Asked:
    given = read_key_values(NAME, argv, EXAMPLES)
    parts = given.get("parts", EXAMPLES["parts"]).split(",")
    unknown = next((name for name in parts if name not in PARTS), None)
    if unknown is not None:
        raise SettingError(
            f"parts={given['parts']} has {unknown!r}, which is no part: choose from "
            f"{', '.join(PARTS)}."
        )
    return _Asked(given.get("out"), list(dict.fromkeys(parts)))


def _say(line: str) -> None:
    print(line, flush=True)


def _help() -> str:
    width = max(map(len, PARTS))
    return USAGE.format(
        parts="\n".join(f"  {name:{width}}  {part.help}" for name, part in PARTS.items())
    )
