// What a device computes at most in float32: nothing but multiply-adds, in 16 chains a thread.
//
//     y ← y · factor + addend        UNROLLED times a round, each chain i from i
//     output = Σ y
//
// Shapes      output f32 [threads]
// Dispatch    groups of 256 threads
// Writes      output

#include "common.hlsli"

struct Constants
{
    uint rounds;
    float factor;
    float addend;
};
CONSTANTS(Constants);
RWByteAddressBuffer output : register(u0);

static const uint CHAINS = 16;
static const uint UNROLLED = 16;

[numthreads(256, 1, 1)]
void main(uint3 thread : SV_DispatchThreadID)
{
    float y[CHAINS];
    [unroll] for (uint i = 0; i < CHAINS; i++)
        y[i] = i;
    [loop] for (uint round = 0; round < constants.rounds; round++)
        [unroll] for (uint j = 0; j < UNROLLED; j++)
            [unroll] for (uint k = 0; k < CHAINS; k++)
                y[k] = y[k] * constants.factor + constants.addend;
    float total = 0;
    [unroll] for (uint n = 0; n < CHAINS; n++)
        total += y[n];
    output.Store(4 * thread.x, asuint(total));
}
