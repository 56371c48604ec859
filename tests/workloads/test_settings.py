from __future__ import annotations

import pytest

from workloads import settings
from workloads.base import WorkloadError


@pytest.mark.parametrize("value", [True, "5", None, float("nan"), float("inf"), 0, -1, 10**400, []])
def test_a_number_that_cannot_be_used_is_named_with_what_is_allowed(value: object) -> None:
    with pytest.raises(
        WorkloadError, match=r"^workload\.x is .* from 1 to 1,000 tokens; mend it\."
    ):
        settings.number("workload.x", value, 1, 1000, "tokens", "mend it")


@pytest.mark.parametrize("value", [True, "5", None, 5.0, 0, 1001])
def test_a_count_must_be_a_whole_number_in_its_range(value: object) -> None:
    with pytest.raises(WorkloadError, match=r"a whole number from 1 to 1,000 tokens"):
        settings.count("workload.x", value, 1, 1000, "tokens", "mend it")


def test_bounds_are_allowed_and_null_is_shown_as_users_write_it() -> None:
    assert settings.number("x", 1, 1, 3, "s", "") == 1.0
    assert settings.count("x", 3, 1, 3, "s", "") == 3
    with pytest.raises(WorkloadError, match="x is null"):
        settings.count("x", None, 1, 3, "s", "")
    assert settings.optional_rate_rps("x", None) is None
