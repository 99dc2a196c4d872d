// attention for few rows: each row's tokens cut into parts, one group a part. For query head h,
//
//     output = Σ_j exp(q · k_j · scale - m) · v_j / l        m = max_j, l = Σ_j exp(… - m)
//
// Shapes      q f32 [T, Hq, D], cache [blocks, 2, Hkv, 16, D], the batch's tables; D a multiple
//             of 4. With one part: output f32 [T, Hq, D]. With several, attention_combine joins
//             sums f32 [T, Hq, parts, D], then (m, l) f32 [T, Hq, parts, 2]
// Dispatch    a group of 64 threads for each (row, KV head, HEADS of its query heads, part), the
//             part counting fastest. By 64 tokens at a time: a thread computes the scores of one
//             token for all heads, then the threads take elements of v, each a pair (PAIRS pairs
//             in large heads); in small heads several threads share a pair and split the tokens.
//             Rows of padding and parts without tokens end at once.
// Reads       q, cache, query_start, kv_len, block_table
// Writes      output (or the scratch memory)
// Defines     CACHE_HALF; HEADS 1, 2, 4 or 8; PAIRS 1 (D ≤ 128) or 2 (D ≤ 256)

#include "common.hlsli"
#include "batch.hlsli"
#include "attention.hlsli"

ByteAddressBuffer q : register(t0);
ByteAddressBuffer cache : register(t1);
ByteAddressBuffer query_start : register(t2);
ByteAddressBuffer kv_len : register(t3);
ByteAddressBuffer block_table : register(t4);
RWByteAddressBuffer output : register(u0);

static const uint THREADS = 64;
static const uint LARGEST_HEAD = 128 * PAIRS;
static const uint MAX_SPLITS = 8;
// Loads of a thread that are under way together.
static const uint KEYS_AT_ONCE = 8;
static const uint VALUES_AT_ONCE = 16 / PAIRS;

// The queries; at the end, what the threads that share a pair have summed.
groupshared float4 queries[HEADS][LARGEST_HEAD / 4];
groupshared float weights[HEADS][THREADS];
groupshared float maxima[HEADS][8];
groupshared uint values[THREADS];  // where the tokens' values start in the cache

[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint D = constants.head_dim;
    uint sharing = constants.query_heads / constants.kv_heads;
    uint head_groups = (sharing + HEADS - 1) / HEADS;
    uint number = group_number(group);
    uint part = number % constants.parts;
    number /= constants.parts;
    uint first_head = HEADS * (number % head_groups);
    number /= head_groups;
    uint kv_head = number % constants.kv_heads;
    uint t = number / constants.kv_heads;
    uint heads = min(HEADS, sharing - first_head);
    first_head += kv_head * sharing;

    uint sequence = sequence_of(query_start, constants.sequences, t);
    if (sequence == constants.sequences)
        return;
    uint position = position_of(query_start, kv_len, sequence, t);
    uint tokens = part_tokens(position);
    uint begin = first_token(position) + part * tokens;
    uint end = min(begin + tokens, position + 1);
    if (begin >= end)
        return;

    uint row = (t * constants.query_heads + first_head) * D;
    for (uint i = thread; i < HEADS * D; i += THREADS)
    {
        uint h = i / D, d = i % D;
        float element = 0;
        if (h < heads)
            element = load_float(q, row + i) * constants.scale;
        queries[h][d / 4][d % 4] = element;
    }
    GroupMemoryBarrierWithGroupSync();

    uint pairs = D / 2;
    uint splits = pairs < THREADS ? min(THREADS / pairs, MAX_SPLITS) : 1;
    uint lane = splits > 1 ? thread % pairs : thread;
    uint split = splits > 1 ? thread / pairs : 0;
    float largest[HEADS], total[HEADS];
    float2 sums[HEADS][PAIRS];
    [unroll] for (uint a = 0; a < HEADS; a++)
    {
        largest[a] = LOWEST;
        total[a] = 0;
        [unroll] for (uint p = 0; p < PAIRS; p++)
            sums[a][p] = 0;
    }
    for (uint base = begin; base < end; base += THREADS)
    {
        uint token = base + thread;
        float scores[HEADS];
        [unroll] for (uint s = 0; s < HEADS; s++)
            scores[s] = token < end ? 0 : LOWEST;
        if (token < end)
        {
            uint block =
                block_table.Load(4 * (sequence * constants.table_blocks + token / BLOCK_TOKENS));
            uint key = cache_element(block, 0, constants.kv_heads, kv_head, token, D);
            values[thread] = cache_element(block, 1, constants.kv_heads, kv_head, token, D);
            for (uint d = 0; d < D / 4; d += KEYS_AT_ONCE)
            {
                float4 elements[KEYS_AT_ONCE];
                [unroll] for (uint e = 0; e < KEYS_AT_ONCE; e++)
                    elements[e] = load_four(cache, key + 4 * min(d + e, D / 4 - 1));
                [unroll] for (uint f = 0; f < KEYS_AT_ONCE; f++)
                    if (d + f < D / 4)
                        [unroll] for (uint h = 0; h < HEADS; h++)
                            scores[h] += dot(queries[h][d + f], elements[f]);
            }
        }
        [unroll] for (uint w = 0; w < HEADS; w++)
            weights[w][thread] = scores[w];
        GroupMemoryBarrierWithGroupSync();
        if (thread < 8 * HEADS)
        {
            float highest = LOWEST;
            [unroll] for (uint i = 0; i < 8; i++)
                highest = max(highest, weights[thread / 8][8 * (thread % 8) + i]);
            maxima[thread / 8][thread % 8] = highest;
        }
        GroupMemoryBarrierWithGroupSync();
        [unroll] for (uint m = 0; m < HEADS; m++)
        {
            float highest = largest[m];
            [unroll] for (uint i = 0; i < 8; i++)
                highest = max(highest, maxima[m][i]);
            float shrink = exp(largest[m] - highest);
            largest[m] = highest;
            total[m] *= shrink;
            [unroll] for (uint p = 0; p < PAIRS; p++)
                sums[m][p] *= shrink;
            weights[m][thread] = token < end ? exp(scores[m] - highest) : 0;
        }
        GroupMemoryBarrierWithGroupSync();
        if (split < splits)
        {
            uint count = min(THREADS, end - base);
            for (uint j = split; j < count; j += VALUES_AT_ONCE * splits)
            {
                float2 elements[VALUES_AT_ONCE][PAIRS];
                [unroll] for (uint e = 0; e < VALUES_AT_ONCE; e++)
                {
                    uint value = values[min(j + e * splits, count - 1)];
                    [unroll] for (uint p = 0; p < PAIRS; p++)
                        elements[e][p] = load_pair(
                            cache, value + 2 * min(lane + THREADS * p, pairs - 1));
                }
                [unroll] for (uint f = 0; f < VALUES_AT_ONCE; f++)
                {
                    if (j + f * splits < count)
                        [unroll] for (uint h = 0; h < HEADS; h++)
                        {
                            float weight = weights[h][j + f * splits];
                            total[h] += weight;
                            [unroll] for (uint p = 0; p < PAIRS; p++)
                                sums[h][p] += weight * elements[f][p];
                        }
                }
            }
        }
        GroupMemoryBarrierWithGroupSync();
    }

    // Several splits: D ≤ 64, so that each has its place in `queries` and one pair a thread.
    if (splits > 1)
    {
        if (split < splits)
            [unroll] for (uint h = 0; h < HEADS; h++)
            {
                uint at = split * D + 2 * lane;
                queries[h][at / 4][at % 4] = sums[h][0].x;
                queries[h][at / 4][at % 4 + 1] = sums[h][0].y;
                if (lane == 0)
                    maxima[h][split] = total[h];
            }
        GroupMemoryBarrierWithGroupSync();
        [unroll] for (uint g = 0; g < HEADS; g++)
        {
            sums[g][0] = 0;
            total[g] = 0;
            for (uint i = 0; i < splits; i++)
            {
                uint at = i * D + 2 * lane;
                sums[g][0] += float2(queries[g][at / 4][at % 4], queries[g][at / 4][at % 4 + 1]);
                total[g] += maxima[g][i];
            }
        }
    }
    if (split > 0)
        return;
    [unroll] for (uint o = 0; o < HEADS; o++)
    {
        if (o < heads)
        {
            uint entry = (t * constants.query_heads + first_head + o) * constants.parts + part;
            float factor = constants.parts == 1 ? 1.0 / total[o] : 1.0;
            [unroll] for (uint p = 0; p < PAIRS; p++)
                if (lane + THREADS * p < pairs)
                    output.Store2(
                        4 * (entry * D + 2 * (lane + THREADS * p)), asuint(sums[o][p] * factor));
            if (constants.parts > 1 && thread == 0)
                output.Store2(
                    4 * (constants.ml_offset + 2 * entry), asuint(float2(largest[o], total[o])));
        }
    }
}
