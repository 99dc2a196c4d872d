// rms_norm: over runs of D elements,
//
//     sum = x + residual                      (x itself without a residual)
//     output = sum / sqrt(mean(sum²) + eps) · weight
//
// Shapes      x, residual, output, sum f32 [runs, D], weight f32 [D]
// Dispatch    groups of 256 threads, cut into teams of `lanes` (a power of two); a team takes a
//             run, four elements a lane at once. It reads the run twice, then from cache.
// Reads       x, weight, residual
// Writes      output, sum
// Defines     HAS_RESIDUAL = 0 or 1

#include "common.hlsli"

struct Constants
{
    uint runs;
    uint length;
    uint lanes;
    float eps;
};
CONSTANTS(Constants);
ByteAddressBuffer x : register(t0);
ByteAddressBuffer weight : register(t1);
RWByteAddressBuffer output : register(u0);
#if HAS_RESIDUAL
ByteAddressBuffer residual : register(t2);
RWByteAddressBuffer sum : register(u1);
#endif

groupshared float squares[256];

// Elements 4 · quad … of a run that starts at `first`; zeros past its end.
float4 load_quad(ByteAddressBuffer buffer, uint first, uint quad)
{
    if (4 * quad + 4 <= constants.length)
        return asfloat(buffer.Load4(4 * (first + 4 * quad)));
    float4 values = 0;
    [unroll] for (uint i = 0; i < 3; i++)
        if (4 * quad + i < constants.length)
            values[i] = load_float(buffer, first + 4 * quad + i);
    return values;
}

void store_quad(RWByteAddressBuffer buffer, uint first, uint quad, float4 values)
{
    if (4 * quad + 4 <= constants.length)
    {
        buffer.Store4(4 * (first + 4 * quad), asuint(values));
        return;
    }
    [unroll] for (uint i = 0; i < 3; i++)
        if (4 * quad + i < constants.length)
            buffer.Store(4 * (first + 4 * quad + i), asuint(values[i]));
}

float4 addends(uint first, uint quad)
{
#if HAS_RESIDUAL
    return load_quad(x, first, quad) + load_quad(residual, first, quad);
#else
    return load_quad(x, first, quad);
#endif
}

[numthreads(256, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint lanes = constants.lanes;
    uint lane = thread & (lanes - 1);
    uint run = group_number(group) * (256 / lanes) + thread / lanes;
    bool exists = run < constants.runs;
    uint first = run * constants.length;

    uint quads = (constants.length + 3) / 4;
    float square = 0;
    if (exists)
    {
        for (uint i = lane; i < quads; i += lanes)
        {
            float4 values = addends(first, i);
            square += dot(values, values);
        }
    }
    squares[thread] = square;
    for (uint distance = lanes / 2; distance > 0; distance /= 2)
    {
        GroupMemoryBarrierWithGroupSync();
        if (lane < distance)
            squares[thread] += squares[thread + distance];
    }
    GroupMemoryBarrierWithGroupSync();
    if (!exists)
        return;
    float mean = squares[thread - lane] / float(constants.length);
    float factor = 1.0 / sqrt(mean + constants.eps);
    for (uint j = lane; j < quads; j += lanes)
    {
        float4 values = addends(first, j);
#if HAS_RESIDUAL
        store_quad(sum, first, j, values);
#endif
        store_quad(output, first, j, values * factor * load_quad(weight, 0, j));
    }
}
