"""The overview as LaTeX tables, with booktabs' rules."""

from __future__ import annotations

from pathlib import Path

from bench.exports.table import PLUS_MINUS, UNDEFINED, Cell, TextTable, overview_tables
from bench.report.groups import slugs
from bench.report.page import Contents, replace_file

HEAD = "% \\usepackage{booktabs}\n"
_ESCAPES = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "<": "\\textless{}", ">": "\\textgreater{}", PLUS_MINUS: "$\\pm$", UNDEFINED: "--",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}  # fmt: skip
_TABLE = str.maketrans(_ESCAPES)


def write_latex(shown: Contents, folder: Path) -> list[Path]:
    """overview.tex, to be read in with \\input."""
    path, tables = folder / "overview.tex", overview_tables(shown.rows)
    names = slugs(table.workload for table in tables)
    text = "\n".join(latex_table(table, names[table.workload]) for table in tables)
    replace_file(path, (HEAD + text).encode())
    return [path]


def latex_table(table: TextTable, slug: str) -> str:
    """A table float, labelled `tab:` and `slug`; it spans a page's two columns where it has two."""
    names = ["run", *(escaped(name) for name, _ in table.headings)]
    units = ["", *(escaped(unit) for _, unit in table.headings)]
    rows = [_line([escaped(row.label), *map(_cell, row.cells)]) for row in table.rows]
    reasons = [f"$^{{{number}}}$ {escaped(why)}" for number, why in enumerate(table.reasons, 1)]
    notes = [*map(escaped, table.notes), *(f"{reason}." for reason in reasons)]
    lines = [
        "\\begin{table*}",
        "  \\centering\\small",
        f"  \\caption{{{escaped(table.title)}. {' '.join(notes)}}}",
        f"  \\label{{tab:{slug}}}",
        f"  \\begin{{tabular}}{{l{'r' * len(table.headings)}}}",
        *(f"    {line}" for line in ["\\toprule", _line(names), _line(units), "\\midrule"]),
        *(f"    {row}" for row in rows),
        "    \\bottomrule",
        "  \\end{tabular}",
        "\\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """`text` as LaTeX sets it unchanged, on one line."""
    return " ".join(text.split()).translate(_TABLE)


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _cell(cell: Cell) -> str:
    mark = f"$^{{{cell.reason}}}$" if cell.reason else ""
    text = escaped(cell.text) + mark
    return f"\\textbf{{{text}}}" if cell.best else text
