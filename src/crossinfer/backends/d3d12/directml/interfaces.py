"""The interfaces of DirectML as tables of the methods that are used (see `..com.Interface`)."""

from __future__ import annotations

from crossinfer.backends.d3d12.com import Interface, IUnknown

IDMLObject = Interface("IDMLObject", "c8263aac-9e0c-4a2d-9b8e-007521a3317c", IUnknown)

IDMLDevice = Interface(
    "IDMLDevice",
    "6dbd6437-96fd-423f-a98c-ae5e7c2a573f",
    IDMLObject,
    """
    7 CheckFeatureSupport u u p u p
    8 CreateOperator p p p
    9 CompileOperator p u p p
    10 CreateOperatorInitializer u p p p
    11 CreateCommandRecorder p p
    12 CreateBindingTable p p p
    15 GetDeviceRemovedReason
    """,
)

IDMLDeviceChild = Interface("IDMLDeviceChild", "27e83142-8165-49e3-974e-2fd66e4cb69d", IDMLObject)

IDMLOperator = Interface("IDMLOperator", "26caae7a-3081-4633-9581-226fbe57695d", IDMLDeviceChild)

# GetBindingProperties returns a structure: its address is the argument after the object.
IDMLDispatchable = Interface(
    "IDMLDispatchable",
    "dcb821a8-1039-441e-9f1c-b1759c2f3cec",
    IDMLDeviceChild,
    """
    8 GetBindingProperties p =p
    """,
)

IDMLCompiledOperator = Interface(
    "IDMLCompiledOperator", "6b15e56a-bf5c-4902-92d8-da3a650afea4", IDMLDispatchable
)

IDMLOperatorInitializer = Interface(
    "IDMLOperatorInitializer", "427c1113-435c-469c-8676-4d5dd072f813", IDMLDispatchable
)

IDMLBindingTable = Interface(
    "IDMLBindingTable",
    "29c687dc-de74-4e3b-ab00-1168f2fc3cfc",
    IDMLDeviceChild,
    """
    8 BindInputs u p -
    9 BindOutputs u p -
    10 BindTemporaryResource p -
    11 BindPersistentResource p -
    """,
)

IDMLCommandRecorder = Interface(
    "IDMLCommandRecorder",
    "e6857a76-2e3e-4fdd-bff4-5d2ba10fb453",
    IDMLDeviceChild,
    """
    8 RecordDispatch p p p -
    """,
)
