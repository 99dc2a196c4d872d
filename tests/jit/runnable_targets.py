"""The instruction sets whose generated code runs here."""

from __future__ import annotations

import dataclasses

from crossinfer.jit.target import AVX512_VNNI, AVX_VNNI, Target, host_targets


def runnable_targets() -> tuple[Target, ...]:
    """Those of this machine; and AVX-VNNI's code in the encoding of AVX-512, where only that runs.

    What the generator writes is the same, but for the encoding of the products of bytes.
    """
    here = host_targets()
    names = {target.name for target in here}
    if AVX_VNNI.name in names or AVX512_VNNI.name not in names:
        return here
    twin = dataclasses.replace(
        AVX_VNNI, name="avx-vnni-as-avx512", features="+avx512vl,+avx512vnni"
    )
    return (*here, twin.for_triple(here[0].triple))
