// attention for many rows: ROWS rows of a sequence and one query head at a time, over 32 tokens at
// a time, with a running softmax (Milakov and Gimelshein 2018; Dao et al. 2022):
//
//     m' = max(m, max_j s_j)        l' = l · exp(m - m') + Σ_j exp(s_j - m')
//     o' = o · exp(m - m') + Σ_j exp(s_j - m') · v_j        output = o / l at the end
//
// Shapes      q f32 [T, Hq, D], cache [blocks, 2, Hkv, 16, D], the batch's tables,
//             output f32 [T, Hq, D]; D a multiple of 4 up to LARGEST_HEAD
// Dispatch    grid (tiles, Hq): the tiles of all sequences follow each other; a sequence's last one
//             may be short, and groups past the last tile end at once. A group has 16 threads a
//             row: each computes two scores of the row, then takes pairs of elements of v.
// Reads       q, cache, query_start, kv_len, block_table
// Writes      output
// Defines     CACHE_HALF, ROWS, LARGEST_HEAD

#include "common.hlsli"
#include "batch.hlsli"
#include "attention.hlsli"

ByteAddressBuffer q : register(t0);
ByteAddressBuffer cache : register(t1);
ByteAddressBuffer query_start : register(t2);
ByteAddressBuffer kv_len : register(t3);
ByteAddressBuffer block_table : register(t4);
RWByteAddressBuffer output : register(u0);

static const uint LANES = 16;
static const uint THREADS = ROWS * LANES;
static const uint TOKENS = 32;
static const uint PAIRS = LARGEST_HEAD / 2 / LANES;
static const uint AT_ONCE = 4;  // loads of a thread that are under way together

groupshared float4 queries[ROWS][LARGEST_HEAD / 4];
groupshared float4 weights[ROWS][TOKENS / 4];
groupshared uint values[TOKENS];  // where the tokens' values start in the cache

[numthreads(ROWS * 16, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint D = constants.head_dim;
    uint head = group.y;
    uint kv_head = head * constants.kv_heads / constants.query_heads;
    uint r = thread / LANES, lane = thread % LANES;

    uint tile = group.x, sequence = 0, start = 0, stop = 0;
    for (; sequence < constants.sequences; sequence++)
    {
        start = query_start.Load(4 * sequence);
        stop = query_start.Load(4 * sequence + 4);
        uint tiles = (stop - start + ROWS - 1) / ROWS;
        if (tile < tiles)
            break;
        tile -= tiles;
    }
    if (sequence == constants.sequences)
        return;
    uint first_row = start + tile * ROWS;
    uint rows = min(ROWS, stop - first_row);
    uint first_position = position_of(query_start, kv_len, sequence, first_row);
    uint position = first_position + r;
    bool exists = r < rows;

    for (uint i = thread; i < rows * D; i += THREADS)
    {
        uint row = i / D, d = i % D;
        queries[row][d / 4][d % 4] = constants.scale
            * load_float(q, ((first_row + row) * constants.query_heads + head) * D + d);
    }
    GroupMemoryBarrierWithGroupSync();

    float largest = LOWEST, total = 0;
    float2 sums[PAIRS];
    [unroll] for (uint z = 0; z < PAIRS; z++)
        sums[z] = 0;
    uint end = first_position + rows;
    for (uint base = first_token(first_position); base < end; base += TOKENS)
    {
        if (thread < TOKENS && base + thread < end)
        {
            uint block = block_table.Load(
                4 * (sequence * constants.table_blocks + (base + thread) / BLOCK_TOKENS));
            values[thread] =
                cache_element(block, 1, constants.kv_heads, kv_head, base + thread, D);
        }
        float scores[2];
        [unroll] for (uint s = 0; s < 2; s++)
        {
            uint token = base + lane + LANES * s;
            scores[s] = LOWEST;
            if (exists && token <= position && token >= first_token(position))
            {
                uint block = block_table.Load(
                    4 * (sequence * constants.table_blocks + token / BLOCK_TOKENS));
                uint key = cache_element(block, 0, constants.kv_heads, kv_head, token, D);
                scores[s] = 0;
                for (uint d = 0; d < D / 4; d += AT_ONCE)
                {
                    float4 elements[AT_ONCE];
                    [unroll] for (uint e = 0; e < AT_ONCE; e++)
                        elements[e] = load_four(cache, key + 4 * min(d + e, D / 4 - 1));
                    [unroll] for (uint f = 0; f < AT_ONCE; f++)
                        if (d + f < D / 4)
                            scores[s] += dot(queries[r][d + f], elements[f]);
                }
            }
            weights[r][(lane + LANES * s) / 4][lane % 4] = scores[s];
        }
        GroupMemoryBarrierWithGroupSync();
        float4 highest = largest;
        [unroll] for (uint h = 0; h < TOKENS / 4; h++)
            highest = max(highest, weights[r][h]);
        float next = max(max(highest.x, highest.y), max(highest.z, highest.w));
        float shrink = exp(largest - next);
        largest = next;
        GroupMemoryBarrierWithGroupSync();
        [unroll] for (uint w = 0; w < 2; w++)
            weights[r][(lane + LANES * w) / 4][lane % 4] =
                scores[w] > LOWEST ? exp(scores[w] - largest) : 0;
        GroupMemoryBarrierWithGroupSync();
        total *= shrink;
        [unroll] for (uint y = 0; y < PAIRS; y++)
            sums[y] *= shrink;
        uint count = min(TOKENS, end - base);
        for (uint j = 0; j < count; j += AT_ONCE)
        {
            float2 elements[AT_ONCE][PAIRS];
            [unroll] for (uint e = 0; e < AT_ONCE; e++)
            {
                uint value = values[min(j + e, count - 1)];
                [unroll] for (uint p = 0; p < PAIRS; p++)
                    elements[e][p] = load_pair(cache, value + 2 * min(lane + LANES * p, D / 2 - 1));
            }
            [unroll] for (uint f = 0; f < AT_ONCE; f++)
                if (j + f < count)
                {
                    float weight = weights[r][(j + f) / 4][(j + f) % 4];
                    total += weight;
                    [unroll] for (uint p = 0; p < PAIRS; p++)
                        sums[p] += weight * elements[f][p];
                }
        }
        GroupMemoryBarrierWithGroupSync();
    }
    if (!exists)
        return;
    uint row = ((first_row + r) * constants.query_heads + head) * D;
    [unroll] for (uint o = 0; o < PAIRS; o++)
        if (2 * (lane + LANES * o) < D)
            output.Store2(4 * (row + 2 * (lane + LANES * o)), asuint(sums[o] / total));
}
