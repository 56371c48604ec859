"""One memory map: bytes over time above, addresses over time below."""

from __future__ import annotations

from itertools import product

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.report.palette import LIGHT
from bench.snapshots.coverage import Column, coverage
from bench.snapshots.lifetimes import Lifetimes, end_of, stack
from bench.snapshots.map_kinds import FREE_COLOUR, Kinds
from bench.snapshots.trace import Action, History

GIB, MIB = 1 << 30, 1 << 20
ALLOCATED_COLOUR, REFUSED_COLOUR = "#69707A", "#C8102E"
SHADES = (0.0, 0.12, 0.24)
"""How much paler blocks are, in turn, so that neighbours of one kind can be told apart."""
MOST_OUTLINES = 300
STILL_SHARE = 0.01
STRIP_SHARE = 0.08
ROWS = 420
STEPS = 1500


class MapPanel:
    """A history made ready to be drawn. `times` are places on the x axis, one a row."""

    def __init__(self, title: str, history: History, times: Column) -> None:
        self.title = title
        self.history = history
        self._times = times
        self._extent = (float(times[0]) if len(times) else 0.0), end_of(times)
        self._blocks, self._segments = stack(history, times)
        self._reserved = _total(self._segments, self._extent[1])
        self._allocated = _total(self._blocks, self._extent[1])

    @property
    def peak_bytes(self) -> float:
        """The most that was reserved or allocated."""
        return float(max(self._reserved[1].max(), self._allocated[1].max()))

    @property
    def height_bytes(self) -> float:
        """Of the map."""
        tops = np.concatenate([self._blocks.top, self._segments.top])
        return float(tops.max(initial=0.0))

    @property
    def floor_bytes(self) -> float:
        """The height below which hardly anything changes: STILL_SHARE of what does, by bytes and
        time."""
        start, end = self._extent
        moving = (self._blocks.begin > start) | (self._blocks.end < end)
        order = np.argsort(self._blocks.bottom[moving], kind="stable")
        bottoms = self._blocks.bottom[moving][order]
        areas = ((self._blocks.end - self._blocks.begin) * self._blocks.size)[moving][order]
        above = bottoms[areas.cumsum() > STILL_SHARE * areas.sum()]
        return float(above.min()) if len(above) else 0.0

    def draw_totals(self, axes: Axes, peak_bytes: float) -> None:
        """Bytes reserved and allocated; a red mark where memory was refused."""
        for held, colour in (
            (self._reserved, FREE_COLOUR),
            (self._allocated, ALLOCATED_COLOUR),
        ):
            xs, ys = _thinned(*held)
            axes.fill_between(xs, ys / GIB, step="post", color=colour, linewidth=0)
        xs, ys = _thinned(*self._reserved)
        axes.plot(xs, ys / GIB, drawstyle="steps-post", color=LIGHT.ink, linewidth=0.9)
        refused = self._refused()
        (marks,) = axes.plot(
            refused, np.full(len(refused), peak_bytes * 1.12 / GIB), linestyle="none", marker="v",
            markersize=3, color=REFUSED_COLOUR, clip_on=False,
        )  # fmt: skip
        marks.set_in_layout(False)
        axes.set_ylim(0, peak_bytes * 1.12 / GIB)
        axes.set_title(self.title)
        axes.tick_params(labelbottom=False)
        axes.yaxis.set_major_locator(MaxNLocator(2))

    def kinds_in(self, kinds: Kinds) -> set[int]:
        """The places of the kinds that its blocks have."""
        return set(kinds.of(self._blocks, self.history.labels).tolist())

    @property
    def refuses(self) -> bool:
        """Whether any allocation is refused."""
        return bool(len(self._refused()))

    def _refused(self) -> Column:
        return np.asarray(self._times[self.history.rows["action"] == Action.OOM])

    def draw_map(self, axes: Axes, floor: float, height: float, kinds: Kinds, columns: int) -> None:
        """The map in so many columns of pixels, from `floor` to `height` bytes."""
        extent = (*self._extent, floor / GIB, height / GIB)
        axes.imshow(self._pixels(extent, kinds, columns), extent=extent, origin="lower",
                    aspect="auto", interpolation="antialiased")  # fmt: skip
        if self._segments.outlined.sum() <= MOST_OUTLINES:
            axes.add_collection(self._outlines(), autolim=False)
        axes.set_xlim(self._extent)
        axes.set_ylim(floor / GIB, height / GIB)
        if floor:
            self._draw_floor(axes, floor / GIB, height / GIB)
        axes.grid(visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))

    def _draw_floor(self, axes: Axes, floor_gib: float, height_gib: float) -> None:
        """A strip below the map for what is not drawn."""
        strip = STRIP_SHARE * (height_gib - floor_gib)
        axes.axhspan(floor_gib - strip, floor_gib, facecolor=LIGHT.grid, hatch="////",
                     edgecolor=LIGHT.paper, linewidth=0)  # fmt: skip
        axes.text(
            0.5, floor_gib - strip / 2, f"{floor_gib:.1f} GiB that hardly change, not drawn",
            fontsize=7, ha="center", va="center", transform=axes.get_yaxis_transform(),
            bbox={"color": LIGHT.paper, "pad": 1.0},
        )  # fmt: skip
        ticks = [tick for tick in axes.get_yticks() if floor_gib <= tick <= height_gib]
        axes.set_yticks(ticks)
        axes.set_ylim(floor_gib - strip, height_gib)

    def _pixels(
        self, extent: tuple[float, float, float, float], kinds: Kinds, columns: int
    ) -> Column:
        """Red, green and blue: each pixel's colours in the shares of what lies in it."""
        kind = kinds.of(self._blocks, self.history.labels)
        turn = np.argsort(np.argsort(self._blocks.begin, kind="stable")) % len(SHADES)
        paper = np.array(to_rgb(LIGHT.paper))
        picture, held = np.zeros((ROWS, columns, 3)), np.zeros((ROWS, columns))
        for place, shade in product(range(len(kinds.names)), range(len(SHADES))):
            share = self._share(self._blocks, (kind == place) & (turn == shade), extent, columns)
            base = np.array(to_rgb(kinds.colours[place]))
            colour = base + (paper - base) * SHADES[shade]
            picture += share[..., None] * colour
            held += share
        everything = np.ones(len(self._segments.begin), bool)
        reserved = np.maximum(self._share(self._segments, everything, extent, columns), held)
        picture += (reserved - held)[..., None] * np.array(to_rgb(FREE_COLOUR))
        picture += (1 - reserved)[..., None] * paper
        return np.clip(picture, 0, 1)

    def _share(
        self,
        held: Lifetimes,
        which: np.ndarray[tuple[int], np.dtype[np.bool_]],
        extent: tuple[float, float, float, float],
        columns: int,
    ) -> Column:
        left, right, low, high = extent
        across, up = columns / (right - left), ROWS / (high - low) / GIB
        return coverage(
            (held.begin[which] - left) * across,
            (held.end[which] - left) * across,
            (held.bottom[which] - low * GIB) * up,
            (held.top[which] - low * GIB) * up,
            (ROWS, columns),
        )

    def _outlines(self) -> PolyCollection:
        left, right = self._segments.begin, self._segments.end
        bottom, top = self._segments.bottom / GIB, self._segments.top / GIB
        corners = [(left, bottom), (right, bottom), (right, top), (left, top)]
        points = np.stack([np.column_stack(corner) for corner in corners], axis=1)
        outlines = PolyCollection(
            list(points[self._segments.outlined]), facecolors="none", edgecolors=LIGHT.muted,
            linewidths=0.5,
        )  # fmt: skip
        outlines.set_in_layout(False)
        return outlines


def legend_of_totals(*, refused: bool) -> list[Artist]:
    """What draw_totals draws; a mark only where an allocation is refused."""
    drawn: list[Artist] = [
        Line2D([], [], color=LIGHT.ink, linewidth=0.9, label="all reserved"),
        Patch(color=ALLOCATED_COLOUR, label="all allocated"),
    ]
    mark = Line2D([], [], color=REFUSED_COLOUR, linestyle="none", marker="v", markersize=4,
                  label="out of memory")  # fmt: skip
    return [*drawn, mark] if refused else drawn


def _total(held: Lifetimes, end: float) -> tuple[Column, Column]:
    """Bytes held, after each time at which they changed, and at the `end`: what is there then has
    not gone."""
    times = np.concatenate([[0.0], held.begin, held.end])
    sizes = np.concatenate([[0.0], held.size, -held.size])
    order = np.argsort(times, kind="stable")
    distinct, first = np.unique(times[order], return_index=True)
    values = np.add.reduceat(sizes[order], first).cumsum()
    before = distinct < end
    return np.append(distinct[before], end), np.append(values[before], values[before][-1])


def _thinned(times: Column, values: Column) -> tuple[Column, Column]:
    """At most STEPS points or so: of those that fall together the highest is kept."""
    if len(times) <= STEPS:
        return times, values
    edges = np.linspace(0, len(times), STEPS, endpoint=False).astype(np.int64)
    return times[edges], np.maximum.reduceat(values, edges)
