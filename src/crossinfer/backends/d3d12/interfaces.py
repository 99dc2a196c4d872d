"""The interfaces of Direct3D 12, DXGI and DXCore that this backend calls.

Slots as in the public headers d3d12.h, d3d12sdklayers.h, dxgi*.h and dxcore_interface.h.
"""

from __future__ import annotations

from crossinfer.backends.d3d12.com import Interface, IUnknown

ID3DBlob = Interface(
    "ID3DBlob",
    "8ba5fb08-5195-40e2-ac58-0d989c3a0102",
    IUnknown,
    """
    3 GetBufferPointer =p
    4 GetBufferSize =z
    """,
)

ID3D12Object = Interface(
    "ID3D12Object",
    "c4fec28f-7966-4e95-9f94-f431cb56c3b8",
    IUnknown,
    """
    6 SetName p
    """,
)
ID3D12DeviceChild = Interface(
    "ID3D12DeviceChild",
    "905db94b-a00c-4140-9df5-2b64ca9ea357",
    ID3D12Object,
    """
    7 GetDevice p p
    """,
)
ID3D12Device = Interface(
    "ID3D12Device",
    "189819f1-1db6-4b57-be54-1821339b85f7",
    ID3D12Object,
    """
    8 CreateCommandQueue p p p
    9 CreateCommandAllocator u p p
    11 CreateComputePipelineState p p p
    12 CreateCommandList u u p p p p
    13 CheckFeatureSupport u p u
    14 CreateDescriptorHeap p p p
    15 GetDescriptorHandleIncrementSize u =u
    16 CreateRootSignature u p z p p
    19 CreateUnorderedAccessView p p p q -
    27 CreateCommittedResource p u p u p p p
    36 CreateFence q u p p
    37 GetDeviceRemovedReason
    39 CreateQueryHeap p p p
    43 GetAdapterLuid p =p
    """,
)
ID3D12CommandQueue = Interface(
    "ID3D12CommandQueue",
    "0ec870a6-5d7e-4c22-8cfc-5baae07616ed",
    ID3D12DeviceChild,
    """
    10 ExecuteCommandLists u p -
    14 Signal p q
    15 Wait p q
    16 GetTimestampFrequency p
    18 GetDesc p =p
    """,
)
ID3D12CommandAllocator = Interface(
    "ID3D12CommandAllocator",
    "6102dee4-af59-4b09-b999-b44d73f09b24",
    ID3D12DeviceChild,
    """
    8 Reset
    """,
)
ID3D12GraphicsCommandList = Interface(
    "ID3D12GraphicsCommandList",
    "5b160d0f-ac1b-4185-8ba8-b3ae42a5a455",
    ID3D12DeviceChild,
    """
    9 Close
    10 Reset p p
    14 Dispatch u u u -
    15 CopyBufferRegion p q p q q -
    25 SetPipelineState p -
    26 ResourceBarrier u p -
    28 SetDescriptorHeaps u p -
    29 SetComputeRootSignature p -
    35 SetComputeRoot32BitConstants u u p u -
    39 SetComputeRootShaderResourceView u q -
    41 SetComputeRootUnorderedAccessView u q -
    53 EndQuery p u u -
    54 ResolveQueryData p u u u p q -
    """,
)
ID3D12Fence = Interface(
    "ID3D12Fence",
    "0a753dcf-c4d8-4b91-adf6-be5a60d95a76",
    ID3D12DeviceChild,
    """
    8 GetCompletedValue =q
    9 SetEventOnCompletion q p
    10 Signal q
    """,
)
ID3D12Resource = Interface(
    "ID3D12Resource",
    "696442be-a72e-4059-bc79-5b5c98040fad",
    ID3D12DeviceChild,
    """
    8 Map u p p
    9 Unmap u p -
    11 GetGPUVirtualAddress =q
    """,
)
ID3D12DescriptorHeap = Interface(
    "ID3D12DescriptorHeap",
    "8efb471d-616c-4f49-90f7-127bb763fa51",
    ID3D12DeviceChild,
    """
    9 GetCPUDescriptorHandleForHeapStart p =p
    10 GetGPUDescriptorHandleForHeapStart p =p
    """,
)
ID3D12QueryHeap = Interface(
    "ID3D12QueryHeap", "0d9658ae-ed45-469e-a61d-970ec583cab4", ID3D12DeviceChild
)
ID3D12RootSignature = Interface(
    "ID3D12RootSignature", "c54a6b66-72df-4ee8-8be5-a946a1429214", ID3D12DeviceChild
)
ID3D12PipelineState = Interface(
    "ID3D12PipelineState",
    "765a30f3-f624-4c6f-a828-ace948622445",
    ID3D12DeviceChild,
    """
    8 GetCachedBlob p
    """,
)

ID3D12Debug = Interface(
    "ID3D12Debug",
    "344488b7-6846-474b-b989-f027448245e0",
    IUnknown,
    """
    3 EnableDebugLayer -
    """,
)
ID3D12InfoQueue = Interface(
    "ID3D12InfoQueue",
    "0742a90b-c387-483f-b946-30a7e4e61458",
    IUnknown,
    """
    4 ClearStoredMessages -
    5 GetMessage q p p
    8 GetNumStoredMessages =q
    """,
)
ID3D12DeviceRemovedExtendedDataSettings = Interface(
    "ID3D12DeviceRemovedExtendedDataSettings",
    "82bc481c-6b9b-4030-aedb-7ee3d1df1e63",
    IUnknown,
    """
    3 SetAutoBreadcrumbsEnablement u -
    4 SetPageFaultEnablement u -
    """,
)
ID3D12DeviceRemovedExtendedData = Interface(
    "ID3D12DeviceRemovedExtendedData",
    "98931d33-5ae8-4791-aa3c-1a73a2934e71",
    IUnknown,
    """
    3 GetAutoBreadcrumbsOutput p
    4 GetPageFaultAllocationOutput p
    """,
)

IDXGIFactory1 = Interface(
    "IDXGIFactory1",
    "770aae78-f26f-4dba-a829-253c83d1b387",
    IUnknown,
    """
    12 EnumAdapters1 u p
    """,
)
IDXGIFactory6 = Interface(
    "IDXGIFactory6",
    "c1b6694f-ff09-44a9-b03c-77900a0a1d17",
    IDXGIFactory1,
    """
    29 EnumAdapterByGpuPreference u u p p
    """,
)
IDXGIAdapter1 = Interface(
    "IDXGIAdapter1",
    "29038f61-3839-4626-91fd-086879011a05",
    IUnknown,
    """
    9 CheckInterfaceSupport p p
    10 GetDesc1 p
    """,
)
IDXGIAdapter3 = Interface(
    "IDXGIAdapter3",
    "645967a4-1392-4310-a798-8053ce3e93fd",
    IDXGIAdapter1,
    """
    14 QueryVideoMemoryInfo u u p
    """,
)

IDXCoreAdapter = Interface(
    "IDXCoreAdapter",
    "f0db4c7f-fe5a-42a2-bd62-f2a6cf6fc83e",
    IUnknown,
    """
    3 IsValid =b
    4 IsAttributeSupported p =b
    5 IsPropertySupported u =b
    6 GetProperty u z p
    7 GetPropertySize u p
    """,
)
IDXCoreAdapterList = Interface(
    "IDXCoreAdapterList",
    "526c7776-40e9-459b-b711-f32ad76dfc28",
    IUnknown,
    """
    3 GetAdapter u p p
    4 GetAdapterCount =u
    """,
)
IDXCoreAdapterFactory = Interface(
    "IDXCoreAdapterFactory",
    "78ee5945-c36e-4b13-a669-005dd11c0f06",
    IUnknown,
    """
    3 CreateAdapterList u p p p
    """,
)
