// Joins what attention_split made of a row's parts:
//
//     output = Σ_p exp(m_p - m) · sums_p / Σ_p exp(m_p - m) · l_p        m = max_p m_p
//
// Shapes      scratch memory as in attention_split.hlsl, at most 128 parts; the batch's tables,
//             output f32 [T, Hq, D]
// Dispatch    grid (Hq, T): a group of 256 threads joins one head of a row: four times 64 threads
//             take a pair of elements each, for every fourth part. Rows of padding are left.
// Reads       scratch, query_start, kv_len
// Writes      output

#include "common.hlsli"
#define CACHE_HALF 0
#include "batch.hlsli"
#include "attention.hlsli"

ByteAddressBuffer scratch : register(t0);
ByteAddressBuffer query_start : register(t1);
ByteAddressBuffer kv_len : register(t2);
RWByteAddressBuffer output : register(u0);

static const uint LANES = 64;
static const uint SPLITS = 4;
static const uint MOST_PARTS = 128;
static const uint AT_ONCE = 4;  // loads of a thread that are under way together

// (m, l) of each part; then exp(m_p - m), and l_p times that.
groupshared float2 factors[MOST_PARTS];
groupshared float2 sums[SPLITS][LANES];

[numthreads(256, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint t = group.y;
    uint sequence = sequence_of(query_start, constants.sequences, t);
    if (sequence == constants.sequences)
        return;
    uint position = position_of(query_start, kv_len, sequence, t);
    uint tokens = part_tokens(position);
    uint parts = (position + 1 - first_token(position) + tokens - 1) / tokens;
    uint entry = t * constants.query_heads + group.x;
    uint first = entry * constants.parts;

    float2 own = float2(LOWEST, 0);
    if (thread < parts)
    {
        own = asfloat(scratch.Load2(4 * (constants.ml_offset + 2 * (first + thread))));
        factors[thread] = own;
    }
    GroupMemoryBarrierWithGroupSync();
    float largest = LOWEST;
    for (uint i = 0; i < parts; i++)
        largest = max(largest, factors[i].x);
    GroupMemoryBarrierWithGroupSync();
    if (thread < parts)
    {
        float factor = exp(own.x - largest);
        factors[thread] = float2(factor, factor * own.y);
    }
    GroupMemoryBarrierWithGroupSync();
    float total = 0;
    for (uint j = 0; j < parts; j++)
        total += factors[j].y;

    uint lane = thread % LANES, split = thread / LANES;
    uint pairs = constants.head_dim / 2;
    for (uint base = 0; base < pairs; base += LANES)
    {
        uint pair = min(base + lane, pairs - 1);
        float2 sum = 0;
        for (uint part = split; part < parts; part += AT_ONCE * SPLITS)
        {
            float2 loaded[AT_ONCE];
            [unroll] for (uint e = 0; e < AT_ONCE; e++)
            {
                uint from = first + min(part + e * SPLITS, parts - 1);
                loaded[e] = asfloat(scratch.Load2(4 * (from * constants.head_dim + 2 * pair)));
            }
            [unroll] for (uint f = 0; f < AT_ONCE; f++)
                if (part + f * SPLITS < parts)
                    sum += factors[part + f * SPLITS].x * loaded[f];
        }
        sums[split][lane] = sum;
        GroupMemoryBarrierWithGroupSync();
        if (split == 0 && base + lane < pairs)
        {
            [unroll] for (uint s = 1; s < SPLITS; s++)
                sum += sums[s][lane];
            output.Store2(4 * (entry * constants.head_dim + 2 * pair), asuint(sum / total));
        }
        GroupMemoryBarrierWithGroupSync();
    }
}
