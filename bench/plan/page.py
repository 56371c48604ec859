"""A plan as a page: sections of sentences and tables, on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Section:
    """`how` says how its numbers were got; the first column of `rows` is text, the rest numbers."""

    title: str
    how: str = ""
    lines: Sequence[str] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    after: Sequence[str] = field(default=())

    @property
    def heading(self) -> str:
        """The title with how its numbers were got."""
        return f"{self.title} ({self.how})" if self.how else self.title


def print_page(page: Sequence[Section], console: Console) -> None:
    """The page on a terminal, plain where there is none."""
    for section in page:
        console.print(escape(section.heading), style="bold", highlight=False, soft_wrap=True)
        _say(section.lines, console)
        if section.rows:
            console.print(_table(section))
        _say(section.after, console)
        console.print()


def as_markdown(page: Sequence[Section]) -> str:
    """The page as Markdown, its first section under the one title."""
    parts = []
    for number, section in enumerate(page):
        blocks = [f"{'##' if number else '#'} {section.heading}", *section.lines]
        if section.rows:
            blocks.append("\n".join(_markdown_rows(section)))
        parts += [*blocks, *section.after]
    return "\n\n".join(parts) + "\n"


def _say(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _table(section: Section) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2))
    first, *rest = section.heads
    table.add_column(escape(first))
    for head in rest:
        table.add_column(escape(head), justify="right")
    for row in section.rows:
        table.add_row(*map(escape, row))
    return table


def _markdown_rows(section: Section) -> list[str]:
    heads, rows = section.heads, section.rows
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
            for row in (heads, rule, *rows)]  # fmt: skip
