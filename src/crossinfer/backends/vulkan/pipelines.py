"""Pipelines from the SPIR-V of shader kernels: one for each kernel, made when it is first used."""

from __future__ import annotations

import ctypes
import dataclasses
import threading

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import DESCRIPTOR_STORAGE_BUFFER, STAGE_COMPUTE
from crossinfer.backends.vulkan.errors import check
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.backends.vulkan.pipeline_cache import PipelineCache
from crossinfer.core.errors import KernelUnsupported
from crossinfer.hal.kernel import Kernel
from crossinfer.kernels.binary import shader_binary
from crossinfer.kernels.shader import ShaderKernel, Target


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """A pipeline, with what binding to it needs."""

    handle: int
    layout: int
    set_layout: int


class Pipelines:
    """The kernels and pipelines of one device."""

    def __init__(self, device: LogicalDevice, device_name: str) -> None:
        """Raises VulkanError."""
        self._device = device
        self._device_name = device_name
        self._cache = PipelineCache(device)
        self._lock = threading.Lock()
        self._kernels: dict[ShaderKernel, Kernel] = {}
        self._pipelines: dict[ShaderKernel, Pipeline] = {}
        self._layouts: dict[tuple[int, int], tuple[int, int]] = {}

    def kernel(self, shader: ShaderKernel) -> Kernel:
        """The HAL's kernel of a shader; costs nothing until it is used."""
        with self._lock:
            return self._kernels.setdefault(shader, Kernel(shader.name, shader))

    def pipeline(self, shader: ShaderKernel) -> Pipeline:
        """Raises VulkanError, and KernelUnsupported if the device's limits are too low."""
        found = self._pipelines.get(shader)
        if found is None:
            self._check_limits(shader)
            found = self._pipelines[shader] = self._create(shader)
        return found

    def save(self) -> None:
        """Keep what the driver compiled, for the next process."""
        if self._pipelines:
            self._cache.save()

    def _check_limits(self, shader: ShaderKernel) -> None:
        limits = self._device.physical.limits
        most_threads = min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0])
        for what, needed, limit in (
            ("threads in a group", shader.group_size, most_threads),
            (
                "storage buffers",
                shader.reads + shader.writes,
                limits.maxPerStageDescriptorStorageBuffers,
            ),
            (
                "bytes of groupshared memory",
                shader.shared_bytes,
                limits.maxComputeSharedMemorySize,
            ),
            ("bytes of push constants", shader.constant_bytes, limits.maxPushConstantsSize),
        ):
            if needed > limit:
                raise KernelUnsupported(
                    f"Kernel {shader.name} needs {needed} {what}, and device {self._device_name} "
                    f"has at most {limit}."
                )

    def _create(self, shader: ShaderKernel) -> Pipeline:
        device = self._device
        set_layout, layout = self._layout(shader.reads + shader.writes, shader.constant_bytes)
        code = shader_binary(shader, Target.SPIRV)
        module = device.create(
            "ShaderModule", vk.VkShaderModuleCreateInfo(codeSize=len(code), pCode=code)
        )
        try:
            stage = vk.VkPipelineShaderStageCreateInfo(
                stage=STAGE_COMPUTE, module=module, pName=shader.entry.encode()
            )
            info = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout, basePipelineIndex=-1)
            made = ctypes.c_void_p()
            result = device.functions.vkCreateComputePipelines(
                device.handle, self._cache.handle, 1, ctypes.byref(info), None, ctypes.byref(made)
            )
            check("vkCreateComputePipelines", result)
        finally:
            device.destroy("ShaderModule", module)
        return Pipeline(device.keep("vkDestroyPipeline", made.value), layout, set_layout)

    def _layout(self, bindings: int, constant_bytes: int) -> tuple[int, int]:
        """Descriptor set layout and pipeline layout; shaders of the same sizes share them."""
        found = self._layouts.get((bindings, constant_bytes))
        if found is not None:
            return found
        slots = [
            vk.VkDescriptorSetLayoutBinding(
                binding=number,
                descriptorType=DESCRIPTOR_STORAGE_BUFFER,
                descriptorCount=1,
                stageFlags=STAGE_COMPUTE,
            )
            for number in range(bindings)
        ]
        set_layout = self._device.create(
            "DescriptorSetLayout",
            vk.VkDescriptorSetLayoutCreateInfo(
                bindingCount=bindings, pBindings=vk.array_of(slots) if slots else None
            ),
        )
        constants = vk.VkPushConstantRange(stageFlags=STAGE_COMPUTE, size=constant_bytes)
        layout = self._device.create(
            "PipelineLayout",
            vk.VkPipelineLayoutCreateInfo(
                setLayoutCount=1,
                pSetLayouts=vk.handles([set_layout]),
                pushConstantRangeCount=1 if constant_bytes else 0,
                pPushConstantRanges=constants if constant_bytes else None,
            ),
        )
        self._layouts[bindings, constant_bytes] = set_layout, layout
        return set_layout, layout
