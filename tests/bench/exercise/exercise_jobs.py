"""The layouts of exercise a, with what is counted of them beside what the allocator then does."""

from __future__ import annotations

from typing import Any

import torch

from bench.exercise.fragment_job import LAYOUTS, _Lab


def emptied(payload: dict[str, Any]) -> dict[str, Any]:
    """What is counted after every other tensor was freed, and what is reserved when all that can go
    back to the driver has gone."""
    lab = _Lab()
    tensors = LAYOUTS[payload["layout"]](lab, payload)
    del tensors[1::2]
    counted = lab.state()
    torch.cuda.empty_cache()
    return {"counted": counted, "emptied": lab.state()}
