"""The overview as Markdown tables."""

from __future__ import annotations

import re
from pathlib import Path

from bench.exports.table import Cell, TextTable, overview_tables
from bench.report.page import Contents, replace_file

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|$~&])")


def write_markdown(shown: Contents, folder: Path) -> list[Path]:
    """overview.md."""
    path = folder / "overview.md"
    replace_file(path, "\n".join(map(markdown_table, overview_tables(shown.rows))).encode())
    return [path]


def markdown_table(table: TextTable) -> str:
    """A table with its title above and its notes below."""
    heads = ["run", *(f"{name} ({unit})" if unit else name for name, unit in table.headings)]
    lines = [
        f"**{escaped(table.title)}**",
        "",
        _line([escaped(head) for head in heads]),
        _line(["---", *["---:"] * len(table.headings)]),
        *(_line([escaped(row.label), *map(_cell, row.cells)]) for row in table.rows),
        "",
        *(f"{escaped(note)}  " for note in table.notes),
        *(f"<sup>{number}</sup> {escaped(why)}  " for number, why in enumerate(table.reasons, 1)),
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """`text` as Markdown shows it unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    mark = f"<sup>{cell.reason}</sup>" if cell.reason else ""
    return f"**{cell.text}**" if cell.best else f"{cell.text}{mark}"
