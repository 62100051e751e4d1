"""The folders that a run writes to even where everything else that it writes is thrown away.

What was compiled for this machine and what was downloaded would otherwise be compiled and
downloaded again by every run. A cache is what a program may lose without harm; so nothing in one
is a person's work.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterable, Mapping

# Variables that name such a folder.
_NAMED = (
    "XDG_CACHE_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR",
    "TRITON_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "HF_HOME", "HF_HUB_CACHE",
    "HF_DATASETS_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "PIP_CACHE_DIR",
    "UV_CACHE_DIR", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "KERAS_HOME", "NLTK_DATA", "TFDS_DATA_DIR",
    "FASTAI_HOME",
)  # fmt: skip
# Where they are without a variable, below the home folder.
_IN_HOME = (
    ".cache", ".nv", ".triton", ".keras", ".fastai", ".matplotlib", ".config/matplotlib",
    "nltk_data", "scikit_learn_data", "tensorflow_datasets",
)  # fmt: skip


def kept_folders(named: Iterable[str], root: str, variables: Mapping[str, str]) -> list[str]:
    """The caches of this user and the folders that the configuration names, absolute and without
    links. Some may not be there yet. A variable that names the project itself, or what holds the
    home folder, counts for nothing.
    """
    home = os.path.expanduser("~")
    places = [value for name in _NAMED for value in variables.get(name, "").split(os.pathsep)]
    places += [os.path.join(home, name) for name in _IN_HOME] if os.path.isabs(home) else []
    places.append(os.path.join(tempfile.gettempdir(), f"torchinductor_{_user()}"))
    folders = {_resolved(place, root) for place in places if place}
    whole = {os.sep, *map(os.path.realpath, (home, tempfile.gettempdir()))}
    # A variable that names a folder of files by mistake must not open everything.
    folders = {one for one in folders if not any(is_within(place, one) for place in whole)}
    folders.discard(os.path.realpath(root))
    return sorted(folders | {_resolved(name, root) for name in named})


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _resolved(place: str, root: str) -> str:
    return os.path.realpath(os.path.join(root, os.path.expanduser(place)))


def _user() -> str:
    # A user without a name, as in containers, has no such folder either.
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "user"
