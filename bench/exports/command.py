"""`fragbench export DIR`: results in the formats that others read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from bench.errors import SettingError
from bench.exports.mlflow_runs import load_mlflow
from bench.report.command import SETTINGS as OBJECTIVE
from bench.report.command import read_arguments
from bench.report.page import Contents, contents
from bench.report.rates import Slo
from bench.setting_files import make_folder

FORMATS = {
    "markdown": ("markdown:write_markdown", "overview.md: the first table of the report"),
    "latex": ("latex:write_latex", "overview.tex: the same, with booktabs"),
    "csv": ("data:write_csv", "comparison.csv with intervals over repeats, runs.csv"),
    "parquet": ("data:write_parquet", "the same, with types"),
    "figures": ("figures:write_figures", "SVG, PDF and PNG, a column and a page wide"),
    "vllm": ("vllm:write_vllm", "JSON as `vllm bench serve --save-result` writes it, a file a run"),
    "mlflow": ("mlflow_runs:write_mlflow", "runs logged to MLflow, where it is installed"),
}
"""Where each is written, and what it gives."""

DEFAULT = "markdown,latex,csv,parquet,figures,vllm"
FOLDER = "exports"
_FORMATS_SAID = "\n".join(f"  {name:9} {what}" for name, (_, what) in FORMATS.items())
HELP = f"""\
usage: fragbench export DIR [to={DEFAULT}] [out=DIR/{FOLDER}]

Writes what `fragbench report DIR` shows for other programs, in place of an earlier export.

{_FORMATS_SAID}

ttft_slo_s=, tpot_slo_s= and attained= are the report's, for figures of sweeps of rates."""

Writer = Callable[[Contents, Path], list[Path]]


class _Asked(NamedTuple):
    directory: Path
    slo: Slo
    formats: list[str]
    out: Path


def main(argv: Sequence[str]) -> int:
    """Writes what is asked for and prints where. Raises SettingError."""
    if {"-h", "--help"} & set(argv):
        print(HELP)
        return 0
    asked = _read(argv)
    shown = contents(asked.directory, asked.slo)
    make_folder(asked.out)
    for name in asked.formats:
        paths = _writer(name)(shown, asked.out)
        print(f"{name}: {_said(paths, asked.out)}")
    print(f"Exports: {asked.out}")
    return 0


def _read(argv: Sequence[str]) -> _Asked:
    parts = [argument.partition("=") for argument in argv]
    given = {name: value for name, _, value in parts if name in ("to", "out")}
    rest = [argument for argument in argv if argument.partition("=")[0] not in given]
    folders = [argument for argument in rest if argument.partition("=")[0] not in OBJECTIVE]
    if len(folders) != 1 or folders[0].startswith("-"):
        raise SettingError(
            f"export: give one folder of results, and to= and out= as needed; "
            f"{' '.join(folders) or 'none'} was given."
        )
    directory, slo = read_arguments(rest)
    out = Path(given["out"]) if given.get("out") else directory / FOLDER
    return _Asked(directory, slo, _formats(given.get("to", DEFAULT)), out)


def _formats(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = next((name for name in names if name not in FORMATS), None)
    if unknown is not None or not names:
        raise SettingError(f"to={text}: {unknown or 'nothing'} is none of {', '.join(FORMATS)}.")
    if "mlflow" in names:
        load_mlflow()  # before anything is written
    return list(dict.fromkeys(names))


def _writer(name: str) -> Writer:
    module, _, function = FORMATS[name][0].partition(":")
    writer: Writer = getattr(import_module(f"bench.exports.{module}"), function)
    return writer


def _said(paths: Sequence[Path], folder: Path) -> str:
    names = [path.relative_to(folder).as_posix() for path in paths]
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} files, {names[0]} the first"
