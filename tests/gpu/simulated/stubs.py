"""Generates the parts that are not written by hand: name tables, and libraries that replace the
real ones.

    stubs.py tables SITE OUT   OUT/names.inc: names of the runtime's and the driver's functions, by
                               callback id; OUT/errors.inc: names and texts of the errors
    stubs.py stubs SITE OUT    OUT/libcudart.so.13, OUT/libcublas.so.13, …

Each library has the name and symbol versions of the real one and links against libsimgpu.so, which
defines the simulated functions. Every other function of the real library is a stub that calls
simgpu_missing with its name and returns the library's "not supported" code. So a program that calls
one fails with that error at the call instead of failing to load.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

# Path of the real library below site-packages (None: installed with the driver), and its "not
# supported" code.
LIBRARIES: dict[str, tuple[str | None, int]] = {
    "libcudart.so.13": ("nvidia/cu13/lib/libcudart.so.13", 801),
    "libcublas.so.13": ("nvidia/cu13/lib/libcublas.so.13", 15),
    "libcublasLt.so.13": ("nvidia/cu13/lib/libcublasLt.so.13", 15),
    "libcudnn.so.9": ("nvidia/cudnn/lib/libcudnn.so.9", 3000),
    "libcupti.so.13": ("nvidia/cu13/lib/libcupti.so.13", 27),
    "libnccl.so.2": ("nvidia/nccl/lib/libnccl.so.2", 5),
    "libcuda.so.1": (None, 801),
    "libnvidia-ml.so.1": (None, 3),
}

# NVML functions that PyTorch looks up and that are not simulated. NVML's header is not shipped with
# torch.
NVML_STUBS = [
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetGpuFabricInfoV",
]

# cuBLAS routines without their own simulation launch a kernel named after the routine.
BLAS_ROUTINE = re.compile(r"cublas([SDCZ][a-z]|I[sdcz]a|\w+Ex$)")


def callback_names(header: Path, prefix: str) -> str:
    """Returns the initializer of a table of function names by callback id."""
    names = {
        int(number): name
        for name, number in re.findall(prefix + r"(\w+)\s*=\s*(\d+)", header.read_text())
        if name not in ("SIZE", "FORCE_INT", "INVALID")
    }
    return "{" + ",".join(f'"{names.get(i, "")}"' for i in range(max(names) + 1)) + "}"


def error_table(include: Path, runtime: Path) -> str:
    """Returns names and texts of the errors from the real library. That needs no device."""
    library = ctypes.CDLL(str(runtime))
    library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
    header = (include / "cuda.h").read_text()
    codes = re.findall(r"(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)", header)
    driver = {int(number): name for name, number in codes}
    rows = []
    for code in range(1000):
        name = library.cudaGetErrorName(code).decode()
        text = library.cudaGetErrorString(code).decode()
        if name != "unrecognized error code":
            rows.append(f'{{{code}, "{name}", "{driver.get(code, "")}", "{text}"}}')
    return "{" + ",\n".join(rows) + "}"


def write_tables(include: Path, runtime: Path, out: Path) -> None:
    names = callback_names(include / "cupti_runtime_cbid.h", "CUPTI_RUNTIME_TRACE_CBID_")
    driver = callback_names(include / "cupti_driver_cbid.h", "CUPTI_DRIVER_TRACE_CBID_")
    (out / "names.inc").write_text(
        f"static const char* const runtime_names[] = {names};\n"
        f"static const char* const driver_names[] = {driver};\n"
    )
    (out / "errors.inc").write_text(
        "struct ErrorText {\n  int code;\n  const char *runtime_name, *driver_name, *text;\n};\n"
        f"static const ErrorText error_texts[] = {error_table(include, runtime)};\n"
    )


def exported(library: Path) -> set[str]:
    command = ["nm", "-D", "--defined-only", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in listing.stdout.splitlines()]
    return {words[-1].split("@")[0] for words in lines if "A" not in words[:-1]}


def symbols_of(library: str, real: Path | None, include: Path) -> list[str]:
    if real:
        return sorted(exported(real))
    if library == "libcuda.so.1":
        header = (include / "cuda.h").read_text()
        return sorted(set(re.findall(r"CUresult CUDAAPI (cu\w+)\(", header)))
    return NVML_STUBS


def write_library(name: str, real: Path | None, code: int, missing: list[str], out: Path) -> None:
    """Generates an assembly stub for each missing symbol, which calls simgpu_missing(name, code) or
    simgpu_blas_launch(handle, name).
    """
    lines = [".text"]
    for i, symbol in enumerate(missing):
        lines += [f".globl {symbol}", f".type {symbol},@function", f"{symbol}:"]
        if name == "libcublas.so.13" and BLAS_ROUTINE.match(symbol):
            lines += [f" leaq .Lname{i}(%rip), %rsi", " jmp simgpu_blas_launch@PLT"]
        else:
            lines += [f" leaq .Lname{i}(%rip), %rdi", f" movl ${code}, %esi"]
            lines.append(" jmp simgpu_missing@PLT")
    lines.append(".section .rodata")
    lines += [f'.Lname{i}: .asciz "{symbol}"' for i, symbol in enumerate(missing)]
    lines.append('.section .note.GNU-stack,"",@progbits')
    source = out / f"{name}.s"
    source.write_text("\n".join(lines) + "\n")
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{name}"]
    if real:  # PyTorch requires NVIDIA's symbol versions, which are the library's own name
        versions = out / f"{name}.map"
        versions.write_text(f"{name} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script={versions}")
    command += ["-o", str(out / name), str(source), "-Wl,-rpath,$ORIGIN", f"-L{out}", "-lsimgpu"]
    subprocess.run(command, check=True)


def main() -> None:
    mode, site, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    include = site / "nvidia/cu13/include"
    if mode == "tables":
        write_tables(include, site / "nvidia/cu13/lib/libcudart.so.13", out)
        return
    simulated = exported(out / "libsimgpu.so")
    for name, (path, code) in LIBRARIES.items():
        real = site / path if path else None
        if name == "libnccl.so.2" and "ncclAllReduce" not in simulated:
            continue
        defined = simulated | {"_init", "_fini"}
        missing = [
            symbol
            for symbol in symbols_of(name, real, include)
            if symbol not in defined and not symbol.startswith("_Z")
        ]
        write_library(name, real, code, missing, out)


main()
