"""Writes the gallery's page from the results of its runs, where every number comes from."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from typing import Any

Row = dict[str, Any]
OUTCOMES = {
    "at once": "works without configuration",
    "chosen": "works without configuration: the terminal asks which of several scripts to profile",
    "by name": "works when the script is named (the folder has several, or the README names none)",
    "with arguments": "works with arguments from its README or `--help`",
    "not at all": "does not work",
    "cannot": "cannot run here (needs data, a GPU or packages that were not available)",
    "no data": "not tested: its data could not be generated",
    "not here": "not tested: its checkout is missing",
}
LONGEST_MESSAGE = 180


def render(
    programs: list[Row], commits: dict[str, str], rows: list[Row], judged: list[Row], version: str
) -> str:
    by_name = {program["name"]: program for program in programs}
    tried = [
        row | {"outcome": outcome(by_name[row["name"]], row)} for row in rows if row["attempts"]
    ]
    parts = [
        introduction(tried, len(programs), version),
        table(by_name, commits, tried),
        batch_sizes(by_name, tried),
        precision(tried, judged),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def outcome(program: Row, row: Row) -> str:
    cannot = row["outcome"] == "not at all" and "cannot" in program
    return "cannot" if cannot else str(row["outcome"])


def last(row: Row) -> Row:
    return row["attempts"][-1]


def works(row: Row) -> bool:
    return last(row)["code"] == 0


def introduction(rows: list[Row], listed: int, version: str) -> str:
    counts = Counter(row["outcome"] for row in rows)
    profiled = [last(row) for row in rows if works(row)]
    revisions = ", ".join(sorted({row["revision"] for row in rows}))
    machine = ", ".join(
        sorted({f"{attempt['device']} with PyTorch {attempt['torch']}" for attempt in profiled})
    )
    lines = [
        "# Public programs",
        "",
        "This page lists public programs, unmodified, profiled with tiny synthetic data and",
        "without a network. Each was profiled as a new user would do it: `ridgeline profile .`",
        "in its folder, then the commands from its README.",
        "[`tests/programs`](../tests/programs/README.md) has the list and runs it on your",
        "checkouts. `tests/programs/run --write` generated this page.",
        "",
        f"Tested with {version} ({revisions}) on {machine}:"
        if machine
        else f"Tested with {version}:",
        "",
    ]
    lines += [
        f"- {counts[outcome]} of {len(rows)}: {what}"
        for outcome, what in OUTCOMES.items()
        if counts[outcome]
    ]
    runnable = len(rows) - counts["cannot"]
    if runnable:
        bare = counts["at once"] + counts["chosen"]
        named = bare + counts["by name"]
        lines += [
            "",
            f"Of the {runnable} that can run here, {bare} work with `ridgeline profile .`, and",
            f"{named} if the script is also named. The others need arguments to run",
            "without a GPU, or an argument that names the data.",
        ]
        untrained = [
            row["name"] for row in rows if works(row) and not last(row).get("trains", True)
        ]
        if untrained:
            lines += [
                "",
                "Profiled in evaluation, because training did not begin within the time limit: "
                f"{', '.join(untrained)}.",
            ]
    if listed > len(rows):
        lines += ["", f"{listed - len(rows)} more are listed and were not tested."]
    return "\n".join(lines)


def table(programs: dict[str, Row], commits: dict[str, str], rows: list[Row]) -> str:
    lines = [
        "## Results",
        "",
        "`~` marks an inferred batch size.",
        "",
        "| program | result | `ridgeline profile` | loop | batch | findings |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        attempt = last(row)
        cells = [
            link(programs[row["name"]], commits),
            OUTCOMES[row["outcome"]],
            f"`{attempt['command']}`",
        ]
        if works(row):
            found = ", ".join(
                f"`{rule}`" for rule in sorted({finding["rule"] for finding in attempt["findings"]})
            )
            cells += [
                attempt["loop"] or "in a library",
                batch(attempt),
                found,
            ]
            lines.append("| " + " | ".join(cells) + " |")
        else:
            why = programs[row["name"]].get("cannot")
            said = escape(attempt["message"]) + (f" (it {why})" if why else "")
            lines.append("| " + " | ".join([*cells, said, "", ""]) + " |")
    return "\n".join(lines)


def link(program: Row, commits: dict[str, str]) -> str:
    if "own" in program:
        return f"{program['name']}, with [our script](../tests/programs/own/{program['own']})"
    repository, folder = program["repository"], program.get("folder", "")
    commit = commits[repository]
    return f"[{program['name']}](https://github.com/{repository}/tree/{commit}/{folder})"


def batch(attempt: Row) -> str:
    size = attempt["batch_size"]
    return (
        "unknown" if size is None else f"{'~' if attempt.get('batch_guessed_from') else ''}{size}"
    )


def milliseconds(time: float) -> str:
    return f"{time:.3g} ms" if time < 1000 else f"{time / 1000:.3g} s"


def escape(message: str) -> str:
    # Program output may contain terminal escape sequences.
    message = re.sub(r"(\x1b|\ufffd)\[[0-9;]*m|[\x00-\x1f]", " ", message)
    message = " ".join(message.replace("|", "\\|").replace("<", "&lt;").split())
    return message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "…"


def batch_sizes(programs: dict[str, Row], rows: list[Row]) -> str:
    known = [
        (row, programs[row["name"]]["batch"])
        for row in rows
        if works(row) and "batch" in programs[row["name"]]
    ]
    if not known:
        return ""
    certain = [
        (row, size)
        for row, size in known
        if last(row)["batch_size"] is not None and not last(row).get("batch_guessed_from")
    ]
    wrong = [(row, size) for row, size in certain if last(row)["batch_size"] != size]
    text = (
        f"## Batch sizes\n\nOf {len(known)} programs with the batch size in their source, "
        f"{len(certain)} have one without `~`. {len(certain) - len(wrong)} of these are correct.\n"
    )
    return text + "".join(
        f"\n- {row['name']}: {last(row)['batch_size']}; it is {size}" for row, size in wrong
    )


def precision(rows: list[Row], judged: list[Row]) -> str:
    """Holds findings to what a reader of the program said, and their costs to their lines."""
    verdicts = {
        (verdict["program"], verdict["rule"], verdict["line"]): verdict for verdict in judged
    }
    reported = [
        (row["name"], finding, last(row))
        for row in rows
        if works(row)
        for finding in last(row)["findings"]
    ]
    if not reported:
        return ""
    with_verdict = [
        (name, finding, verdicts.get((name, finding["rule"], place(finding))))
        for name, finding, _ in reported
    ]
    false = [entry for entry in with_verdict if entry[2] and not entry[2]["right"]]
    read = sum(entry[2] is not None for entry in with_verdict)
    lines = [
        "## Findings",
        "",
        f"{len(reported)} findings in {len({name for name, _, _ in reported})} programs.",
        f"{read} of them were reviewed against the program's source",
        f"([judged.toml](../tests/programs/judged.toml)): {alarms(len(false), read)}.",
        "A false alarm is wrong about the program, or suggests a fix that would not help.",
        "",
        "| rule | reported | reviewed | false alarms |",
        "|---|---|---|---|",
    ]
    for rule, count in Counter(finding["rule"] for _, finding, _ in reported).most_common():
        of_rule = [entry for entry in with_verdict if entry[1]["rule"] == rule]
        judged_count = sum(entry[2] is not None for entry in of_rule)
        lines.append(
            f"| `{rule}` | {count} | {judged_count} | {sum(entry in false for entry in of_rule)} |"
        )
    lines += [
        f"\nFalse: {name}, `{finding['rule']}` at {place(finding)}. {verdict['why']}"
        for name, finding, verdict in false
        if verdict
    ]
    above = [
        (name, finding, limit)
        for name, finding, attempt in reported
        if (limit := exceeded(finding, attempt)) is not None
    ]
    lines += ["", f"Findings with a higher cost than their line or phase: {len(above)}.", ""]
    for name, finding, limit in above:
        cost = f"{milliseconds(finding['time_ms'])} of {milliseconds(limit)}"
        lines.append(f"- {name}, `{finding['rule']}` at {place(finding)}: {cost}")
    return "\n".join(lines)


def alarms(false: int, read: int) -> str:
    share = f", {100 * false / read:.1f}%" if read else ""
    return f"{false} false alarm{'' if false == 1 else 's'}{share}"


def place(finding: Row) -> str:
    return f"{finding['file']}:{finding['line']}"


def exceeded(finding: Row, attempt: Row) -> float | None:
    """Returns the upper bound of a finding's cost, if the cost exceeds it."""
    if finding["time_ms"] is None:
        return None
    if finding["rule"].startswith("loader"):
        limit = attempt["phases_ms"]["data"]
    elif finding["rule"] == "unfused-optimizer":
        limit = attempt["phases_ms"]["optimizer"]
    elif finding["rule"] == "iteration-varies":
        # The lines are those of a typical iteration.
        limit = statistics.fmean(attempt["timed_ms"])
    else:
        limit = attempt["lines_ms"].get(place(finding), attempt["time_ms"])
    return limit if finding["time_ms"] > limit else None
