"""Columns of an estimate's operators, which the time limit may interrupt anywhere."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from ridgeline_agent.estimate.operator_columns import OperatorColumns


def test_columns_are_equally_long_at_each_line() -> None:
    columns = OperatorColumns()
    ones = torch.ones(4)
    seen: list[int] = []

    def check(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not OperatorColumns.add.__code__:
            return None
        lengths = {len(column) for column in columns.json()["ops"].values()}
        assert lengths == {len(columns)}
        assert len(columns.place(len(columns))) == 3
        seen.extend(lengths)
        return check

    before = sys.gettrace()
    sys.settrace(check)
    try:
        for key in ("first", "second"):
            columns.add(torch.ops.aten.relu.default, key, (ones,), {}, ones, (1, 2, 3))
    finally:
        sys.settrace(before)
    assert set(seen) == {0, 1, 2}
    assert columns.place(1) == (1, 2, 3)
