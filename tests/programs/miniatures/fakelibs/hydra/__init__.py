"""hydra.main: a function gets what a YAML file and the command line's overrides configure."""

import functools
import inspect
import sys
from pathlib import Path
from types import SimpleNamespace


def value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def main(version_base=None, config_path=None, config_name=None):
    def decorate(task):
        @functools.wraps(task)
        def run():
            folder = Path(inspect.getfile(task)).parent / config_path
            lines = (folder / config_name).with_suffix(".yaml").read_text().splitlines()
            pairs = [line.split(":", 1) for line in lines if ":" in line]
            pairs += [override.split("=", 1) for override in sys.argv[1:]]
            return task(
                SimpleNamespace(**{key.strip(): value(text.strip()) for key, text in pairs})
            )

        return run

    return decorate
