// The end of a linear whose K was cut into parts, or whose rows of output are no whole vectors: adds
// up what linear_mat left, in the order of the parts, and does what follows (linear_finish.hlsli).
//
// Shapes      parts f32 [splits, T, N padded to a multiple of 4], bias f32 [N], gate and residual
//             f32 [T, N], output f32 [T, N]
// Dispatch    grid (⌈N / 1024⌉, T): a thread takes four columns
// Reads       bias, gate, residual, parts
// Writes      output

#include "common.hlsli"
#include "linear_finish.hlsli"

ByteAddressBuffer bias : register(t0);
ByteAddressBuffer gate : register(t1);
ByteAddressBuffer residual : register(t2);
StructuredBuffer<float4> parts : register(t3);
RWByteAddressBuffer output : register(u0);

void store_output(float y, uint t, uint n)
{
    uint at = t * constants.output_stride + n;
    if (constants.follows & HAS_BIAS)
        y += load_float(bias, n);
    if (constants.follows & HAS_GATE)
        y *= silu(load_float(gate, at));
    if (constants.follows & HAS_RESIDUAL)
        y += load_float(residual, at);
    output.Store(4 * at, asuint(y));
}

[numthreads(256, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint vec = 256 * group.x + thread, t = group.y;
    uint vectors = (constants.outputs + 3) / 4;
    if (vec >= vectors)
        return;
    float4 y = 0;
    for (uint split = 0; split < constants.splits; split++)
        y += parts[(split * constants.tokens + t) * vectors + vec];
    for (uint i = 0; i < min(4, constants.outputs - 4 * vec); i++)
        store_output(y[i], t, 4 * vec + i);
}
