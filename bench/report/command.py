"""`fragbench report DIR`: the comparison of a folder's runs, as a page, a table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import SettingError
from bench.report.page import write_report
from bench.report.rates import Slo

HELP = """\
usage: fragbench report DIR [ttft_slo_s=2] [tpot_slo_s=0.2] [attained=0.9]

Compares the runs in a folder, at any depth: report.html, comparison.csv and figures/.

  ttft_slo_s  first token within so many seconds of a request's being sent
  tpot_slo_s  seconds a token after the first
  attained    the share of requests sent for which both must hold (for sweeps of rates)"""

SETTINGS = {"ttft_slo_s": "ttft_s", "tpot_slo_s": "tpot_s", "attained": "attained"}


def main(argv: Sequence[str]) -> int:
    """Writes the report of the runs in DIR and prints what they show.

    Raises SettingError where DIR holds no run, or for a wrong setting.
    """
    if {"-h", "--help"} & set(argv):
        print(HELP)
        return 0
    directory, slo = read_arguments(argv)
    page, shown = write_report(directory, slo)
    if shown is not None:
        print(shown.headline)
    print(f"Report: {page}")
    return 0


def read_arguments(argv: Sequence[str]) -> tuple[Path, Slo]:
    """The folder and the objective. Raises SettingError."""
    folders = [argument for argument in argv if argument.partition("=")[0] not in SETTINGS]
    if len(folders) != 1 or folders[0].startswith("-"):
        said = " ".join(folders) or "nothing"
        raise SettingError(
            f"report: give one folder of results and {', '.join(f'{s}=' for s in SETTINGS)} as "
            f"needed; {said} was given."
        )
    numbers = {}
    for argument in argv:
        name, _, value = argument.partition("=")
        if name in SETTINGS:
            numbers[SETTINGS[name]] = _number(name, value)
    return Path(folders[0]), Slo(**numbers)


def _number(name: str, text: str) -> float:
    most = 1.0 if name == "attained" else float("inf")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most or value == float("inf"):
        allowed = "a share above 0 and up to 1" if name == "attained" else "seconds above 0"
        raise SettingError(f"{name}={text} is out of range: give {allowed}.")
    return value
