"""Fixes the project in this folder with the tools of `ridgeline mcp`.

It stands in for an agent, without a model: it profiles, applies the patch of a finding, and
profiles again until the finding is gone. Usage: loop.py RIDGELINE RULE
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

TOOLS = {
    "compare_runs",
    "explain_line",
    "findings",
    "line_costs",
    "measure_optimization",
    "optimization_patch",
    "optimizations",
    "predict_gpus",
    "profile",
    "summary",
}
MAX_PATCHES = 3


async def allow(_context: object, question: Any) -> types.ElicitResult:
    """Answers the question whether the program may run."""
    assert "training steps" in question.message, question
    return types.ElicitResult(action="accept", content={"answer": "Always for this workspace"})


async def run(session: ClientSession, rule: str) -> None:
    """Profiles, patches and profiles again until the rule has no finding."""
    stages: list[str] = []

    async def report(_progress: float, _total: float | None, message: str | None) -> None:
        stages.append(message or "")

    async def call(tool: str, **arguments: object) -> str:
        result = await session.call_tool(tool, arguments, progress_callback=report)
        text = "\n".join(item.text for item in result.content)
        assert not result.is_error, f"{tool}: {text}"
        return text

    await session.initialize()
    listed = (await session.list_tools()).tools
    assert {tool.name for tool in listed} == TOOLS, listed
    assert all(tool.description and tool.annotations for tool in listed), listed

    patches = 0
    await call("profile")
    assert "profiling" in stages, stages
    while True:
        findings = await call("findings")
        found = re.search(
            rf"^## {rule} (\S+):(\d+) .*?```diff\n(.*?)```", findings, re.DOTALL | re.MULTILINE
        )
        if found is None:
            assert f"## {rule} " not in findings, f"no patch: {findings}"
            break
        patches += 1
        assert patches <= MAX_PATCHES, findings
        file, line, patch = found.groups()
        explanation = await call("explain_line", file=file, line=int(line))
        assert "of the iteration" in explanation, explanation
        subprocess.run(["patch", "-p1"], input=patch, text=True, check=True)
        summary = await call("summary")
        assert f"changed since: {file}" in summary, summary
        await call("profile")
    await call("line_costs", file=file if patches else "train.py", first_line=1, last_line=5)
    await call("optimizations")
    await call("predict_gpus", gpus=["H100"])
    comparison = await call("compare_runs")
    assert "last~1" in comparison, comparison
    print(f"clean after {patches} patch{'es' if patches > 1 else ''}")


async def main() -> None:
    """Starts the server in this folder and runs the loop."""
    ridgeline, rule = sys.argv[1:]
    server = StdioServerParameters(command=ridgeline, args=["mcp"], env=dict(os.environ))
    async with (
        stdio_client(server) as (read, write),
        ClientSession(read, write, elicitation_callback=allow) as session,
    ):
        await run(session, rule)


asyncio.run(main())
