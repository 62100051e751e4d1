import json
import os
import sys


def text(value):
    """Returns a path that JSON can represent, or None if it is not Unicode."""
    try:
        value.encode("utf-8")
        return value
    except Exception:
        return None


def torch_folder():
    import importlib.machinery
    import importlib.util
    import site

    spec = importlib.util.find_spec("torch")
    if spec is None:
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        folders = [path for path in paths if os.path.isabs(path)]
        if sys.prefix == sys.base_prefix:
            folders.append(site.getusersitepackages())
        spec = importlib.machinery.PathFinder.find_spec("torch", folders)
    if spec is None or not spec.origin or os.path.basename(spec.origin) != "__init__.py":
        return None
    return os.path.dirname(spec.origin)


def torch_facts():
    import ast

    folder = torch_folder()
    if folder is None:
        return None
    with open(os.path.join(folder, "version.py"), "rb") as file:
        tree = ast.parse(file.read(1000000))
    facts = {"version": "unknown", "cuda": None, "hip": None}
    for statement in tree.body:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        for target in targets:
            name = getattr(target, "id", None)
            name = "version" if name == "__version__" else name
            value = getattr(statement, "value", None)
            if name in facts and isinstance(value, ast.Constant):
                facts[name] = None if value.value is None else str(value.value)
    facts["version"] = facts["version"] or "unknown"
    return facts


def main():
    torch = None
    if sys.version_info >= (3, 8):  # noqa: UP036 (any Python may be asked)
        try:
            torch = torch_facts()
        except Exception:
            # A half-installed torch is treated as missing; the advice is the same.
            torch = None
    answer = {
        "version": list(sys.version_info[:3]),
        "prefix": text(sys.prefix),
        "executable": text(sys.executable),
        "torch": torch,
    }
    sys.stdout.write("\nRIDGELINE-PROBE " + json.dumps(answer) + "\n")


main()
