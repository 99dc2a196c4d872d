// swiglu: output = gate · sigmoid(gate) · up, element by element.
//
// Shapes      gate, up, output f32, `elements` in all
// Dispatch    a group of 256 threads takes 256 elements
// Reads       gate, up
// Writes      output

#include "common.hlsli"

struct Constants
{
    uint elements;
};
CONSTANTS(Constants);
ByteAddressBuffer gate : register(t0);
ByteAddressBuffer up : register(t1);
RWByteAddressBuffer output : register(u0);

[numthreads(256, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint i = 256 * group_number(group) + thread;
    if (i < constants.elements)
        output.Store(4 * i, asuint(silu(load_float(gate, i)) * load_float(up, i)));
}
