"""Executes a notebook with the `%%ridgeline` magic and checks the outputs of its cells."""

import os
import re
import sys

import nbclient
import nbformat

SETUP = """\
import os, sys, torch
%load_ext ridgeline
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
optimizer = torch.optim.Adam(model.parameters())
steps = 0
def train(count):
    global steps
    for _ in range(count):
        loss = model(torch.randn(64, 64)).square().mean()
        loss.backward()
        optimizer.step()
        steps += 1
    return loss
def patched():
    return [
        torch.nn.Module.__call__, torch.nn.Module.__init__, torch.Tensor.backward, torch.compile,
        torch.optim.Adam.step, torch.optim.Optimizer.__init__, torch.utils.data.DataLoader.__iter__,
        torch.autograd.profiler.profile.__enter__, torch.autograd.profiler.profile._start_trace,
    ]
before = patched()"""

CHECK = """\
tools = [sys.monitoring.get_tool(tool) for tool in range(6)] if hasattr(sys, "monitoring") else []
hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
[patched() == before, any(tools), torch.autograd._profiler_enabled(), len(hooks), os.getcwd()]"""


def main() -> None:
    here = os.getcwd()
    # What each cell displays, prints, and is not profiled for.
    clean = repr([True, False, False, 0, here])
    cells = [
        (SETUP, None, None, None),
        (
            "\n%%ridgeline\nimport asyncio\nawait asyncio.sleep(0)\nname = 'a'\ntrain(40)\nsteps",
            "40",
            r"[0-9]+% .* 5 │ train\(40\)\n(.*\n)*.*%.* optimizer\.step\(\)",
            None,
        ),
        (CHECK, clean, None, None),
        # It ran once, with the state of the kernel.
        ("steps, name, _.__class__", "(40, 'a', list)", None, None),
        ("%%ridgeline\nmodel(torch.ones(1, 64)).shape", "torch.Size([1, 64])", None, "1 iteration"),
        ("%%ridgeline\n1 + 1;", None, None, "no optimizer step"),
        ("%%ridgeline\ntrain(2)\nraise KeyError('early')", KeyError, None, "the cell failed"),
        (CHECK, clean, None, None),
        (
            "%%ridgeline\nwith torch.profiler.profile() as theirs:\n    train(20)\n"
            "len(theirs.key_averages()) > 5",
            "True",
            None,
            "a PyTorch profiler of its own",
        ),
        ("%%ridgeline\ntrain(40)\nraise KeyError('late')", KeyError, r"% .*train\(40\)", None),
        (CHECK, clean, None, None),
        ("%%time\n%%ridgeline\ntrain(1)", None, "Wall time", "must be the first line"),
    ]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(text) for text, *_ in cells]
    path = os.path.join(here, "train.ipynb")
    nbformat.write(notebook, path)
    # As Jupyter Server starts a kernel.
    os.environ.update(JPY_SESSION_NAME=path, NO_COLOR="1")
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", allow_errors=True
    )
    client.execute()
    for cell, (text, displayed, printed, reason) in zip(notebook.cells, cells):
        check(text, cell.outputs, displayed, printed, reason)
    print("the magic works")


def check(text: str, outputs: list, displayed: object, printed: object, reason: object) -> None:
    """Checks the outputs of a cell: the displayed value or the type of the exception, a pattern
    that its standard output matches, and a part of its standard error.
    """
    shown, streams, errors = None, {"stdout": "", "stderr": ""}, []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] += output.text
        elif output.output_type == "error":
            errors.append(output.ename)
        else:
            shown = output.data["text/plain"]
    found = f"{text}\n{shown}\n{errors}\n{streams['stdout']}\n{streams['stderr']}"
    if isinstance(displayed, type):
        assert errors == [displayed.__name__], found
    else:
        assert errors == [] and shown == displayed, found
    if printed is None:
        assert streams["stdout"] == "", found
    else:
        assert re.search(str(printed), streams["stdout"]), found
    if reason is None:
        assert streams["stderr"] == "", found
    else:
        assert str(reason) in streams["stderr"] and "Traceback" not in streams["stderr"], found


if __name__ == "__main__":
    sys.exit(main())
