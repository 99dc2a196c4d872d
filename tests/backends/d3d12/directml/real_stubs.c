// The libraries that libdirectml.so of the wheel torch-directml is linked with, reduced to the two
// functions that it calls. Whoever loads them says where the calls go.

typedef long (*serialize_function)(const void *, void **, void **);
typedef long (*factory_function)(const void *, void **);

static serialize_function serialize;
static factory_function create_factory;

void set_functions(serialize_function given_serialize, factory_function given_create_factory)
{
    serialize = given_serialize;
    create_factory = given_create_factory;
}

long D3D12SerializeVersionedRootSignature(const void *description, void **blob, void **messages)
{
    return serialize(description, blob, messages);
}

long DXCoreCreateAdapterFactory(const void *iid, void **factory)
{
    return create_factory(iid, factory);
}
