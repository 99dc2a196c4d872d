"""DirectML operators inside the Direct3D 12 backend: GEMM, softmax, add, multiply, cast.

An operator is created from a description (`descriptions`), compiled for its exact shapes
(`session`), initialised once, and recorded into command lists between the kernels of the backend
(`operator`). Nothing here is loaded unless the setting `directml` asks for it.
"""
