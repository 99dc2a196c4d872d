"""Compute shaders that the Vulkan and Direct3D 12 backends share, and how ops become them.

**Bindings.** Of a dispatch's views in order, the i-th one that is only read is `t{i}`, the j-th
one that is written (or read and written) is `u{j}`; constants are `b0`. In Vulkan that is
descriptor set 0, binding i for `t{i}` and binding `reads + j` for `u{j}`, without gaps, and push
constants from offset 0. There are no descriptor arrays and no specialisation constants. An optional
operand that is missing has another read operand in its place, so that every binding is bound.

**Shaders.** One family a file in `hlsl/`; `shader.ShaderKernel` names a file with its defines.
Groups have at most 256 threads, in x, and at most 16 KB of groupshared memory. Nothing depends on
the size of a wave, on native 16-bit types, or on reads out of bounds giving zero.

**Compiling.** `binary.shader_binary` looks among the shaders that came with the package, then in
the cache, then compiles with DXC if that was fetched. `python -m crossinfer.kernels.build` fetches
it and compiles everything that `catalog` lists.

**Weights** are repacked at load (`layout`, `packing`). KV cache blocks lie in the canonical order.
"""
