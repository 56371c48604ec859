"""What `fragbench run --help` prints, read from conf/, whose comments are the explanations."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

DESCRIBED = ("backend", "workload", "sources", "experiment")
LISTED = ("model", "gpu", "workload/arrivals", "workload/kinds", "engine", "driver", "costs",
          "load", "serve", "vllm")  # fmt: skip

_EXAMPLES = """\
  fragbench run backend=paged workload=chat workload.rate_rps=4
  fragbench run backend=contiguous backend.reserve=pow2 gpu=h100_80gb kv_budget=12GiB
  fragbench run workload=trace workload.path=azure_llm_2023_conv.csv out=results/hour
  fragbench matrix backend=contiguous,bucketed,paged workload=chat,code seed=0,1 jobs=2
  fragbench matrix experiment=demo backend=contiguous,contiguous_expandable,bucketed,paged
  fragbench run from=results/hour seed=1    (an earlier run again, with what is changed)"""

_HYDRA = """\
  --cfg job            the settings as they would be used, instead of running
  --cfg job -p engine  one section of them
  --multirun, -m       `fragbench run` as `fragbench matrix`: comma-separated values are swept
  --hydra-help         Hydra's other options; https://hydra.cc explains key=value"""


def help_text(command: str, conf: Path) -> str:
    """Usage, examples, groups with their options, and settings."""
    what = {
        "run": "One experiment: its files go to out=DIR, else to a dated folder under results/.",
        "matrix": "Every combination of comma-separated values, several at a time, a folder each.",
    }
    parts = [
        f"usage: fragbench {command} [group=option ...] [key=value ...]",
        what[command],
        f"Examples\n{_EXAMPLES}",
        f"Groups: group=option (* is the default), then group.key=value\n{_groups(conf)}",
        f"Settings: key=value\n{_settings(conf)}",
        f"Options\n{_HYDRA}",
    ]
    return "\n\n".join(parts)


def _groups(conf: Path) -> str:
    chosen = _defaults(conf / "config.yaml")
    lines = []
    for group in DESCRIBED:
        lines += [f"  {group}", *_options(conf / group, chosen.get(group))]
    for group in LISTED:
        names = sorted(path.stem for path in (conf / group).glob("*.yaml"))
        marked = ["*" * (name == chosen.get(group)) + name for name in names]
        lines.append(f"  {group}: {', '.join(marked)}")
    return "\n".join(lines)


def _options(folder: Path, chosen: str | None) -> list[str]:
    paths = sorted(folder.glob("*.yaml"))
    width = max(len(path.stem) for path in paths)
    return [
        f"    {'*' * (path.stem == chosen):1}{path.stem:{width}}  {_description(path)}"
        for path in paths
    ]


def _description(path: Path) -> str:
    """The first comment that is no directive, without its citations."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and not line.startswith("# @"):
            return re.sub(r" \([^)]*\bet al\.[^)]*\)?", "", line[2:])
    return ""


def _defaults(path: Path) -> dict[str, str]:
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["defaults"]
    return {k: v for entry in entries if isinstance(entry, dict) for k, v in entry.items()}


_SETTING = re.compile(r"(?P<key>\w+): (?P<value>[^#]*[^# ])(?:\s+# (?P<comment>.*))?")


def _settings(conf: Path) -> str:
    text = (conf / "config.yaml").read_text(encoding="utf-8")
    rows = []
    for line in text.splitlines():
        match = _SETTING.fullmatch(line)
        if match:
            rows.append((f"{match['key']}={match['value']}", match["comment"] or ""))
    width = max(len(setting) for setting, _ in rows)
    return "\n".join(f"  {setting:{width}}  {comment}".rstrip() for setting, comment in rows)
