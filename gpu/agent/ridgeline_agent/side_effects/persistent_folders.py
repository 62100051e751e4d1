"""The folders whose writes reach the disk even if all other writes are discarded.

Otherwise every run would compile and download the same files again. A cache can be lost without
harm, so it contains none of the user's work.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterable, Mapping

# Variables that name a cache folder.
_CACHE_VARIABLES = (
    "XDG_CACHE_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR",
    "TRITON_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "HF_HOME", "HF_HUB_CACHE",
    "HF_DATASETS_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "PIP_CACHE_DIR",
    "UV_CACHE_DIR", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "KERAS_HOME", "NLTK_DATA", "TFDS_DATA_DIR",
    "FASTAI_HOME",
)  # fmt: skip
# Default cache folders below the home folder.
_HOME_CACHES = (
    ".cache", ".nv", ".triton", ".keras", ".fastai", ".matplotlib", ".config/matplotlib",
    "nltk_data", "scikit_learn_data", "tensorflow_datasets",
)  # fmt: skip


def kept_folders(configured: Iterable[str], root: str, variables: Mapping[str, str]) -> list[str]:
    """Returns the caches of this user and the folders that the configuration names, as absolute
    paths with links resolved. Some may not exist yet. A variable that names the project itself, or
    a parent of the home folder, is ignored.
    """
    home = os.path.expanduser("~")
    places = [
        value for name in _CACHE_VARIABLES for value in variables.get(name, "").split(os.pathsep)
    ]
    places += [os.path.join(home, name) for name in _HOME_CACHES] if os.path.isabs(home) else []
    places.append(os.path.join(tempfile.gettempdir(), f"torchinductor_{_user()}"))
    folders = {_resolved(place, root) for place in places if place}
    too_general = {os.sep, *map(os.path.realpath, (home, tempfile.gettempdir()))}
    # A variable that names a general folder by mistake must not allow writes everywhere.
    folders = {one for one in folders if not any(is_within(place, one) for place in too_general)}
    folders.discard(os.path.realpath(root))
    return sorted(folders | {_resolved(name, root) for name in configured})


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _resolved(place: str, root: str) -> str:
    return os.path.realpath(os.path.join(root, os.path.expanduser(place)))


def _user() -> str:
    # A user without a name, as in containers, has no such folder.
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "user"
