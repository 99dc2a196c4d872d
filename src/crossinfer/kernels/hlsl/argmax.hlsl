// argmax: the index of each row's largest element, the lowest of equal ones; -1 for a row that
// holds a NaN, or whose largest element is an infinity.
//
// Shapes      x f32 [R, V], output i32 [R]. Long rows take two dispatches: the first gives the best
//             (key, index) of each slice, u32 [R, slices, 2], which the second takes in x's place
// Dispatch    grid (slices, R): a group of 256 threads takes one slice of a row
// Reads       x
// Writes      output (or the scratch memory, with several slices)
// Defines     CANDIDATES = 1: x holds (key, index) instead of floats

#include "common.hlsli"
#include "order.hlsli"

struct Constants
{
    uint columns;
    uint slices;
    uint slice_columns;
};
CONSTANTS(Constants);
ByteAddressBuffer x : register(t0);
RWByteAddressBuffer output : register(u0);

static const uint THREADS = 256;
groupshared uint2 best_of_thread[THREADS];

uint2 candidate(uint row, uint column)
{
    uint at = row * constants.columns + column;
#if CANDIDATES
    return x.Load2(8 * at);
#else
    return uint2(key_of_bits(x.Load(4 * at)), column);
#endif
}

[numthreads(256, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint row = group.y;
    uint begin = group.x * constants.slice_columns;
    uint end = min(begin + constants.slice_columns, constants.columns);
    uint2 best = uint2(0, 0xffffffff);
    for (uint column = begin + thread; column < end; column += THREADS)
    {
        uint2 other = candidate(row, column);
        if (comes_before(other, best))
            best = other;
    }
    best_of_thread[thread] = best;
    for (uint distance = THREADS / 2; distance > 0; distance /= 2)
    {
        GroupMemoryBarrierWithGroupSync();
        // Not one condition: what is behind && may be read all the same, out of bounds.
        if (thread < distance)
        {
            uint2 other = best_of_thread[thread + distance];
            if (comes_before(other, best))
                best = other;
            best_of_thread[thread] = best;
        }
    }
    if (thread > 0)
        return;
    if (constants.slices > 1)
        output.Store2(8 * (row * constants.slices + group.x), best);
    else
    {
        bool usable = best.x > KEY_OF_MINUS_INFINITY && best.x < KEY_OF_INFINITY;
        output.Store(4 * row, usable ? best.y : 0xffffffff);
    }
}
