"""`fragbench kernels`: a table, a CSV and a PNG of decode bandwidth on this machine's GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.status import Status

from bench.device.launcher import Finished, Job, Launcher, Progress
from bench.device.probe import probe
from bench.errors import SettingError
from bench.experiment import compose_cells, make_console
from bench.kernels.drawing import draw
from bench.kernels.registry import PROVIDERS, Provider
from bench.kernels.rows import Device, Row, in_order, write_csv
from bench.kernels.settings import DEFAULTS, Settings, read_settings
from bench.kernels.table import terminal_table
from bench.kernels.virtual import REFUSAL, on_virtual_gpu
from bench.report.drawing import png, style
from bench.report.palette import LIGHT

MEASURE = "bench.kernels.measure"
DEVICE_JOB, PROVIDER_JOB = f"{MEASURE}:measure_device", f"{MEASURE}:measure_provider"
FAILED = 1
NAME = "kernels"

USAGE = """\
usage: fragbench kernels [key=value ...]

Decode attention on this machine's NVIDIA GPU: bytes of K and V read a second, as a share of what a
copy inside the GPU's memory reaches. Measured are our Triton kernel over paged blocks, PyTorch's
scaled_dot_product_attention over contiguous K and V, and the kernels of flashinfer and vLLM where
they are installed. What does not agree with attention in fp32 is reported and not timed.

Settings, with their defaults
{settings}"""

MEANINGS = {
    "batches": "sequences, one new token each",
    "contexts": "tokens of each sequence",
    "block_sizes": "tokens a block: powers of two from 8 to 256",
    "dtype": "of K and V: bf16, fp16, fp8",
    "model": "of conf/model/: the heads that one of its GPUs has",
    "repeats": "timed repeats of each",
    "out": f"folder for {NAME}.csv and {NAME}.png; else a dated one",
}


def main(argv: list[str]) -> int:
    """`fragbench kernels`: 0 if all that can run agreed and was timed, else 1. Raises SettingError
    for a wrong setting and where there is no GPU."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(_help())
        return 0
    settings = read_settings(argv)
    require_gpu()
    command = ["fragbench", NAME, *argv]
    _, folder = compose_cells([f"out={settings.out}"] if settings.out else [], command)
    console = make_console()
    found = _measure(settings, console)
    _write(found, settings, folder, console)
    return FAILED if any(row.status == "failed" for row in found.rows) else 0


def require_gpu() -> None:
    """Raises SettingError where there is nothing to measure."""
    if on_virtual_gpu():
        raise SettingError(REFUSAL)
    machine = probe()
    if not machine.gpu_names:
        raise SettingError(
            "kernels are measured on an NVIDIA GPU and this machine has none that its driver "
            "shows, so nothing was run: `fragbench run device=cpu` computes attention without one."
        )
    if machine.torch_cuda is None:
        raise SettingError(
            "kernels need a CUDA build of PyTorch and the installed one is CPU only, so nothing "
            "was run: install PyPI's (`pip install torch`)."
        )


class _Found(NamedTuple):
    device: Device
    rows: list[Row]


def _measure(settings: Settings, console: Console) -> _Found:
    """One process after the other: the GPU is one."""
    with (
        Launcher("cuda", modules=("torch", MEASURE)) as launcher,
        console.status("copy bandwidth") as status,
    ):
        done = launcher.run(Job(DEVICE_JOB, {"repeats": settings.repeats}))
        device = Device(**_result(done))
        rows = []
        for provider in _installed(console):
            rows += _provider_rows(launcher, provider, settings, status)
    return _Found(device, in_order(rows))


def _installed(console: Console) -> Iterator[Provider]:
    for provider in PROVIDERS:
        if provider.installed:
            yield provider
        else:
            console.print(f"{provider.needs} is not installed: left out.", highlight=False)


def _provider_rows(
    launcher: Launcher, provider: Provider, settings: Settings, status: Status
) -> list[Row]:
    """A row for all that was asked for, however the process ends. Raises SettingError."""
    sizes = settings.block_sizes if provider.paged else (None,)
    asked = [(shape, size) for shape in settings.shapes() for size in sizes]
    payload = {
        "provider": provider.name,
        "module": provider.module,
        "shapes": [asdict(shape) for shape in settings.shapes()],
        "block_sizes": list(sizes),
        "repeats": settings.repeats,
    }
    launcher.submit(Job(PROVIDER_JOB, payload))
    rows: list[Row] = []
    while True:
        status.update(f"{provider.name}: {len(rows)} of {len(asked)} measured")
        for event in launcher.wait():
            if isinstance(event, Progress):
                rows.append(Row.from_dict(event.data["row"]))
            else:
                lost = asked[len(rows) :]
                return rows + [
                    Row(provider.name, shape, size, "failed", note=_cause(event))
                    for shape, size in lost
                ]


def _result(event: Finished) -> dict[str, Any]:
    if event.status == "user_error":
        raise SettingError(str(event.cause))
    if event.status != "ok":
        raise RuntimeError(f"the GPU cannot be measured: {event.traceback or event.cause}")
    result: dict[str, Any] = event.result
    return result


def _cause(event: Finished) -> str:
    if event.status == "user_error":
        raise SettingError(str(event.cause))
    lines = (event.cause or event.status).strip().splitlines()
    return f"its process ended: {lines[0]}"


def _write(found: _Found, settings: Settings, folder: Path, console: Console) -> None:
    shape = settings.shapes()[0]
    device, model = found.device, settings.model.name
    heads = f"{shape.heads} query and {shape.kv_heads} KV heads of {shape.head_dim}"
    title = f"Decode attention, {shape.dtype} KV, {model} ({heads})"
    measure = f"{device.name}: a copy moves {device.copy_gb_s:,.0f} GB/s"
    folder.mkdir(parents=True, exist_ok=True)
    table, picture = folder / f"{NAME}.csv", folder / f"{NAME}.png"
    versions = {provider.name: provider.version for provider in PROVIDERS}
    write_csv(table, found.rows, device, model, versions)
    with style(LIGHT):
        picture.write_bytes(png(draw(found.rows, device, f"{title}\n{measure}")))
    console.print(terminal_table(found.rows, device, title))
    floor = f"read and written; a kernel that does next to nothing takes {device.floor_us:.1f} us"
    console.print(f"{measure}, {floor}.", markup=False, highlight=False)
    for path in (picture, table):
        console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _help() -> str:
    shown = {name: f"{name}={DEFAULTS[name] or 'DIR'}" for name in MEANINGS}
    width = max(map(len, shown.values()))
    lines = [f"  {shown[name]:{width}}  {meaning}" for name, meaning in MEANINGS.items()]
    return USAGE.format(settings="\n".join(lines))
