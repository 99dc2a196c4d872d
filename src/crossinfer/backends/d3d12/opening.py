"""Opens the devices that the backend lists."""

from __future__ import annotations

from crossinfer.backends.d3d12.adapter import Adapter
from crossinfer.backends.d3d12.adapters import find_adapters
from crossinfer.backends.d3d12.com import ComError
from crossinfer.backends.d3d12.constants import SHADER_MODEL_6_0
from crossinfer.backends.d3d12.debug import Messages, enable_breadcrumbs, enable_debug_layer
from crossinfer.backends.d3d12.device import MOST_VIEW_BYTES, D3D12Device
from crossinfer.backends.d3d12.errors import device_error
from crossinfer.backends.d3d12.libraries import Direct3D, direct3d
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.sharing import SharedDevice, shared_device
from crossinfer.core.errors import InvalidUse, KernelUnsupported
from crossinfer.core.settings import read_settings
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.kernels.source import kernel_code

_DISCRETE_STEP_ROWS = 512


def list_devices() -> list[DeviceInfo]:
    """Every adapter that Direct3D 12 takes, the best first; empty without the library."""
    api = direct3d()
    found = [] if api is None else find_adapters(api)
    return [describe(adapter, index) for index, adapter in enumerate(found)]


def describe(adapter: Adapter, index: int) -> DeviceInfo:
    """The HAL's view of the adapter number `index`."""
    return DeviceInfo(
        name=f"d3d12:{index}" if index else "d3d12",
        kind=adapter.kind,
        description=adapter.description,
        driver=adapter.driver,
        memory_bytes=adapter.memory_bytes,
        vendor_id=adapter.vendor_id,
        product_id=adapter.product_id,
        kernel_code=kernel_code(),
        step_rows=(
            _DISCRETE_STEP_ROWS if adapter.kind is DeviceKind.DISCRETE_GPU else DeviceInfo.step_rows
        ),
    )


def open_d3d12(
    index: int = 0, *, validation: bool | None = None, deadline_s: float = 60.0
) -> D3D12Device:
    """The device `index` of `list_devices()`.

    `validation`: whether the debug layer watches it; the default is the setting. Raises InvalidUse,
    and what `D3D12Device` raises.
    """
    api = direct3d()
    found = [] if api is None else find_adapters(api)
    if api is None or index not in range(len(found)):
        raise InvalidUse(f"There is no Direct3D 12 device {index}; {len(found)} were found.")
    return open_adapter(api, found[index], index, validation, deadline_s)


def open_adapter(
    api: Direct3D, adapter: Adapter, index: int, validation: bool | None, deadline_s: float
) -> D3D12Device:
    """Raises the HAL's errors."""
    info = describe(adapter, index)
    settings = read_settings()
    watched = settings.validation if validation is None else validation

    def make() -> SharedDevice:
        # Both before the device is made, else the system takes it away again.
        if watched:
            enable_debug_layer(api)
        if settings.d3d12_dred:
            enable_breadcrumbs(api)
        return SharedDevice(api, api.create_device(adapter.handle, adapter.level), adapter.driver)

    try:
        shared = shared_device(f"{adapter.key}{', watched' * watched}", make)
        try:
            check_shader_model(shared, info)
            native = NativeDevice.create(api, shared.device)
        except BaseException:
            shared.release()
            raise
    except ComError as error:
        raise device_error(error, info.name, "open", in_use=0) from None
    return D3D12Device(
        native,
        info,
        shared,
        max_view_bytes=adapter.most_view_bytes or MOST_VIEW_BYTES,
        messages=Messages(native.device) if watched else None,
        deadline_s=deadline_s,
    )


def check_shader_model(shared: SharedDevice, info: DeviceInfo) -> None:
    """Raises KernelUnsupported if the driver is too old for our kernels."""
    if not shared.takes_model(SHADER_MODEL_6_0):
        raise KernelUnsupported(
            f"Device {info.name} ({info.description}) does not take shaders of model 6.0: "
            "update its driver, or use another device."
        )
