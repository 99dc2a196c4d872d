// top_k: each row's k largest elements in descending order; of equal ones the lower index first.
//
// Shapes      x f32 [R, V] → values f32 [R, slices, k], indices i32 [R, slices, k]. Long rows take
//             several dispatches: each slice gives its k best, which the next takes in place of x,
//             until one slice is left. A slice that is too short fills up with -∞ at no index.
// Dispatch    grid (slices, R): a group of 256 threads sorts a slice of 1024 elements in
//             groupshared memory (bitonic sort, Batcher 1968)
// Reads       x, candidates' indices
// Writes      values, indices
// Defines     CANDIDATES = 1: the elements have indices of their own

#include "common.hlsli"
#include "order.hlsli"

struct Constants
{
    uint columns;
    uint slices;
    uint k;
};
CONSTANTS(Constants);
ByteAddressBuffer x : register(t0);
#if CANDIDATES
ByteAddressBuffer candidates : register(t1);
#endif
RWByteAddressBuffer values : register(u0);
RWByteAddressBuffer indices : register(u1);

static const uint THREADS = 256;
static const uint SLICE = 1024;
groupshared uint2 sorted[SLICE];

uint2 element(uint row, uint column)
{
    if (column >= constants.columns)
        return uint2(KEY_OF_MINUS_INFINITY, 0x7fffffff);
    uint at = row * constants.columns + column;
    uint key = key_of_bits(x.Load(4 * at));
#if CANDIDATES
    return uint2(key, candidates.Load(4 * at));
#else
    return uint2(key, column);
#endif
}

[numthreads(256, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint row = group.y;
    for (uint i = thread; i < SLICE; i += THREADS)
        sorted[i] = element(row, group.x * SLICE + i);
    GroupMemoryBarrierWithGroupSync();
    for (uint size = 2; size <= SLICE; size *= 2)
    {
        for (uint distance = size / 2; distance > 0; distance /= 2)
        {
            for (uint pair = thread; pair < SLICE / 2; pair += THREADS)
            {
                uint low = 2 * pair - (pair & (distance - 1));
                uint high = low + distance;
                bool descending = (low & size) == 0;
                uint2 a = sorted[low], b = sorted[high];
                if (comes_before(b, a) == descending)
                {
                    sorted[low] = b;
                    sorted[high] = a;
                }
            }
            GroupMemoryBarrierWithGroupSync();
        }
    }
    for (uint j = thread; j < constants.k; j += THREADS)
    {
        uint at = (row * constants.slices + group.x) * constants.k + j;
        values.Store(4 * at, bits_of_key(sorted[j].x));
        indices.Store(4 * at, sorted[j].y);
    }
}
