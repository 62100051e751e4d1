"""The agent's entry point: `python -u boot.py` (docs/agent-protocol.md).

Nothing else is known to work yet when this file runs, so all it does is put the package on the
path. The folder must not stay there, because the user's program shares this interpreter and sees
`sys.path`.
"""

import sys

# Modules that the interpreter itself loaded at startup. Taken before the first import below.
LOADED_AT_START = frozenset(sys.modules)

import os  # noqa: E402

FOLDER = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    # Python put this folder first, unless the user's PYTHONSAFEPATH prevented it.
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    sys.path.insert(0, FOLDER)
    if sys.argv[1:2] == ["--hold"]:
        # First, because the arguments after it belong to another command.
        from ridgeline_agent.side_effects.policy import run_redirected

        run_redirected(sys.argv[2:])
    elif "--worker" in sys.argv[1:]:
        from ridgeline_agent.process.worker import serve

        serve(sys.argv[1:], FOLDER, LOADED_AT_START)
    elif "--rank" in sys.argv[1:]:
        from ridgeline_agent.launch.rank import serve_rank

        serve_rank(sys.argv[-1], FOLDER, LOADED_AT_START)
    elif "--launch" in sys.argv[1:]:
        from ridgeline_agent.launch.serve import serve_launches

        serve_launches(sys.argv[1:], os.path.abspath(__file__))
    elif "--list-models" in sys.argv[1:]:
        from ridgeline_agent.models.list_models import main as list_models

        sys.exit(list_models())
    else:
        from ridgeline_agent.process.supervise import supervise

        supervise(sys.argv[1:], os.path.abspath(__file__))


if __name__ == "__main__":
    main()
