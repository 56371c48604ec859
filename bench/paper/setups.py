"""The paper's models and servers (table 1) and its two datasets (section 6.1, figure 11)."""

from __future__ import annotations

from typing import NamedTuple

COSTS = ("costs=sosp23",)
"""The step of the paper's own system (docs/figures.md)."""


class Server(NamedTuple):
    """A name for folders, and a model on its GPUs with the KV memory of the paper's table 1, of
    which each GPU has its share."""

    key: str
    label: str
    overrides: tuple[str, ...]


# Table 1 gives 12, 21 and 264 GB for KV, which are GiB: 15.7K, 9.7K and 60.1K slots follow from
# 12, 21.32 and 264 GiB at 819,200, 2,359,296 and 4,718,592 bytes a token.
OPT_13B = Server(
    "opt_13b",
    "OPT-13B, 1 x A100 40 GB",
    (*COSTS, "model=opt_13b", "gpu=a100_40gb", "kv_budget=12GiB", "utilization=0.95"),
)
OPT_66B = Server(
    "opt_66b",
    "OPT-66B, 4 x A100 40 GB",
    (*COSTS, "model=opt_66b", "gpu=a100_40gb", "kv_budget=5.33GiB", "utilization=0.98"),
)
OPT_175B = Server(
    "opt_175b",
    "OPT-175B, 8 x A100 80 GB",
    (*COSTS, "model=opt_175b", "gpu=a100_80gb", "kv_budget=33GiB", "utilization=0.98"),
)
# LLaMA-13B (figure 16) has Llama 2 13B's shape, its vocabulary too; 2,048 tokens as its release.
LLAMA_13B = Server(
    "llama_13b",
    "LLaMA-13B, 1 x A100 40 GB",
    (*COSTS, "model=llama2_13b", "max_model_len=2048", "gpu=a100_40gb", "kv_budget=12GiB",
     "utilization=0.95"),
)  # fmt: skip


class Dataset(NamedTuple):
    """Lengths that a figure's requests have: a workload, whose one kind bears the same name."""

    label: str
    workload: str

    @property
    def kind(self) -> str:
        """Where the settings of its kind of request are."""
        return f"workload.kinds.{self.workload}"

    def lengths_from(self, path: str) -> tuple[str, ...]:
        """Overrides that draw prompts and outputs together from a file instead."""
        quoted = path.replace("\\", "\\\\").replace("'", "\\'")
        return (f"workload/kinds@{self.kind}=file", f"{self.kind}.pairs.path='{quoted}'")


SHAREGPT = Dataset("ShareGPT", "sharegpt")
ALPACA = Dataset("Alpaca", "alpaca")
