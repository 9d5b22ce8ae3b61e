"""Compiles kernels.c when it is first used and calls it on PyTorch tensors.

The object is compiled with -ffast-math but linked without: at link time that flag would switch
the whole process to flush-to-zero.
"""

import ctypes
import os
import subprocess
import tempfile

import torch

HEAD_DIM = 32  # KDA head width, a constant of the compiled code


def _build() -> ctypes.CDLL:
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.c")
    folder = tempfile.mkdtemp(prefix="nano-kernels-")
    obj, lib = os.path.join(folder, "kernels.o"), os.path.join(folder, "kernels.so")
    subprocess.run(
        ["gcc", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-fPIC",
         "-Wall", "-Wextra", f"-DHD={HEAD_DIM}", "-c", source, "-o", obj], check=True)
    subprocess.run(["gcc", "-shared", "-o", lib, obj, "-lmvec", "-lm"], check=True)
    built = ctypes.CDLL(lib)
    blas = ctypes.CDLL("libblas.so.3")
    built.set_sgemm(ctypes.cast(blas.cblas_sgemm, ctypes.c_void_p))
    built.add_gradients.restype = ctypes.c_double
    return built


_library = None


def library() -> ctypes.CDLL:
    global _library  # one compilation per process; forked children share it
    if _library is None:
        _library = _build()
    return _library


def ptr(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def ptrs(tensors) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])


def f32(x: float) -> ctypes.c_float:
    return ctypes.c_float(x)
