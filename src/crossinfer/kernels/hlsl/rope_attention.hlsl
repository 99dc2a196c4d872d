// rope_kv and attention in one, for few rows: the tokens of each row cut into parts, one group a
// part. For query head h, with q and the step's own keys rotated (rope.hlsli),
//
//     output = Σ_j exp(q · k_j · scale - m) · v_j / l        m = max_j, l = Σ_j exp(… - m)
//
// The step's own keys and values are taken from k and v, the others from the cache, so no group
// waits for what another writes there.
//
// Shapes      q f32 [T, Hq, D], k and v f32 [T, Hkv, D], table f32 [P, D/2, 2], the batch's tables,
//             cache [blocks, 2, Hkv, 16, D]; T up to 8, D a multiple of 4 up to 128. With one
//             part: output f32 [T, Hq, D]. With several, attention_combine joins sums f32
//             [T, Hq, parts, D], then (m, l) f32 [T, Hq, parts, 2]
// Dispatch    a group of 256 threads for each (row, KV head, HEADS of its query heads, part), the
//             part counting fastest. By 256 tokens at a time: a thread computes the scores of one
//             token for all heads; then D/4 threads take four elements of v each, several times
//             over, each time for other tokens. The first group of a KV head that has the row's own
//             token writes it to the cache. Rows of padding and parts without tokens end at once.
// Reads       q, k, v, table, query_start, kv_len, block_table, cache
// Writes      cache, output (or the scratch memory)
// Defines     CACHE_HALF, INTERLEAVED; HEADS 1, 2 or 4; PART_TOKENS 256

#include "common.hlsli"
#include "batch.hlsli"
#include "rope.hlsli"
#include "attention.hlsli"

// Structured, since drivers load the words of a ByteAddressBuffer one by one.
#if CACHE_HALF
typedef uint2 Four;  // elements of the cache
#else
typedef uint4 Four;
#endif
StructuredBuffer<float2> q : register(t0);
StructuredBuffer<float2> k : register(t1);
StructuredBuffer<float4> v : register(t2);
StructuredBuffer<float4> table : register(t3);
ByteAddressBuffer query_start : register(t4);
ByteAddressBuffer kv_len : register(t5);
ByteAddressBuffer block_table : register(t6);
RWStructuredBuffer<Four> cache : register(u0);
RWByteAddressBuffer output : register(u1);

static const uint THREADS = 256;
static const uint MOST_ROWS = 8;
static const uint LARGEST_HEAD = 128;
static const uint MAX_SPLITS = 16;
static const uint OWN = 0x80000000;  // marks a value that is in v
// Loads of a thread that are under way together.
static const uint KEYS_AT_ONCE = HEADS == 1 ? 16 : 4;
static const uint VALUES_AT_ONCE = HEADS == 1 ? 8 : 4;

groupshared float2 queries[HEADS][LARGEST_HEAD / 2];
groupshared float2 own_keys[MOST_ROWS][LARGEST_HEAD / 2];
groupshared float weights[HEADS][THREADS];
groupshared float maxima[HEADS][8];
groupshared uint values[THREADS];  // where the tokens' values start in the cache or in v
groupshared float4 shared_sums[THREADS];
groupshared float totals[MAX_SPLITS];

float4 load_cached(uint element)
{
#if CACHE_HALF
    uint2 words = cache[element / 4];
    return float4(halves(words.x), halves(words.y));
#else
    return asfloat(cache[element / 4]);
#endif
}

void store_pair(uint element, float2 pair)
{
#if CACHE_HALF
    if (element % 4 == 0)
        cache[element / 4].x = pack_halves(pair);
    else
        cache[element / 4].y = pack_halves(pair);
#else
    if (element % 4 == 0)
        cache[element / 4].xy = asuint(pair);
    else
        cache[element / 4].zw = asuint(pair);
#endif
}

// The part of a head's row that starts at `row`, rotated.
void load_rotated(
    StructuredBuffer<float2> buffer, uint row, uint part, uint position,
    out float2 x, out float2 y)
{
    uint2 at = part_elements(part, constants.head_dim);
    x = buffer[(row + at.x) / 2];
    y = buffer[(row + at.y) / 2];
    rotate_part(x, y, load_turns(table, position, part, constants.head_dim));
}

// Rotates the queries of the row at `position`.
void load_queries(uint row, uint heads, uint position, uint thread)
{
    uint parts = constants.head_dim / 4;
    for (uint i = thread; i < HEADS * parts; i += THREADS)
    {
        uint h = i / parts, part = i % parts;
        uint2 at = part_elements(part, constants.head_dim);
        float2 x = 0, y = 0;
        if (h < heads)
            load_rotated(q, row + h * constants.head_dim, part, position, x, y);
        queries[h][at.x / 2] = x * constants.scale;
        queries[h][at.y / 2] = y * constants.scale;
    }
}

// Rotates `count` keys of the step, from the row of k at `first_row` and `position` on. The last
// one goes to its slot in the cache with its value, if `block` is not NO_BLOCK.
static const uint NO_BLOCK = 0xffffffff;

void load_own_keys(
    uint first_row, uint count, uint kv_head, uint position, uint block, uint thread)
{
    uint D = constants.head_dim, parts = D / 4;
    for (uint i = thread; i < count * parts; i += THREADS)
    {
        uint own = i / parts, part = i % parts;
        uint row = ((first_row + own) * constants.kv_heads + kv_head) * D;
        uint2 at = part_elements(part, D);
        float2 x, y;
        load_rotated(k, row, part, position + own, x, y);
        own_keys[own][at.x / 2] = x;
        own_keys[own][at.y / 2] = y;
        if (own + 1 == count && block != NO_BLOCK)
        {
            uint token = position + own;
            uint key = cache_element(block, 0, constants.kv_heads, kv_head, token, D);
            uint value = cache_element(block, 1, constants.kv_heads, kv_head, token, D);
            store_pair(key + at.x, x);
            store_pair(key + at.y, y);
            float4 four = v[row / 4 + part];
            store_pair(value + 4 * part, four.xy);
            store_pair(value + 4 * part + 2, four.zw);
        }
    }
}

// q · k for a token in the cache.
void add_cached_scores(uint key, inout float scores[HEADS])
{
    uint quads = constants.head_dim / 4;
    for (uint d = 0; d < quads; d += KEYS_AT_ONCE)
    {
        float4 elements[KEYS_AT_ONCE];
        [unroll] for (uint e = 0; e < KEYS_AT_ONCE; e++)
            elements[e] = load_cached(key + 4 * min(d + e, quads - 1));
        [unroll] for (uint f = 0; f < KEYS_AT_ONCE; f++)
        {
            // What was loaded twice counts once; branches here would take compilers long.
            float4 element = d + f < quads ? elements[f] : 0;
            uint pair = 2 * min(d + f, quads - 1);
            [unroll] for (uint h = 0; h < HEADS; h++)
                scores[h] += dot(float4(queries[h][pair], queries[h][pair + 1]), element);
        }
    }
}

// q · k for one of the step's own tokens.
void add_own_scores(uint own, inout float scores[HEADS])
{
    for (uint pair = 0; pair < constants.head_dim / 2; pair++)
        [unroll] for (uint h = 0; h < HEADS; h++)
            scores[h] += dot(queries[h][pair], own_keys[own][pair]);
}

float4 load_value(uint value, uint quad)
{
    if (value & OWN)
        return v[(value & ~OWN) / 4 + quad];
    return load_cached(value + 4 * quad);
}

[numthreads(256, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint D = constants.head_dim;
    uint sharing = constants.query_heads / constants.kv_heads;
    uint head_groups = (sharing + HEADS - 1) / HEADS;
    uint number = group_number(group);
    uint part = number % constants.parts;
    number /= constants.parts;
    uint first_head = HEADS * (number % head_groups);
    bool writes = first_head == 0;
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
    uint first_row = query_start.Load(4 * sequence);
    uint first_own = position - (t - first_row);  // position of the sequence's first row
    uint blocks = 4 * sequence * constants.table_blocks;

    load_queries((t * constants.query_heads + first_head) * D, heads, position, thread);
    uint own_block = NO_BLOCK;
    if (writes && end == position + 1)
        own_block = block_table.Load(blocks + 4 * (position / BLOCK_TOKENS));
    load_own_keys(first_row, t - first_row + 1, kv_head, first_own, own_block, thread);
    GroupMemoryBarrierWithGroupSync();

    uint quads = D / 4;
    uint splits = min(THREADS / quads, MAX_SPLITS);
    uint lane = thread % quads, split = thread / quads;
    float largest[HEADS], total[HEADS];
    float4 sums[HEADS];
    [unroll] for (uint a = 0; a < HEADS; a++)
    {
        largest[a] = LOWEST;
        total[a] = 0;
        sums[a] = 0;
    }
    for (uint base = begin; base < end; base += THREADS)
    {
        uint token = base + thread;
        float scores[HEADS];
        [unroll] for (uint s = 0; s < HEADS; s++)
            scores[s] = token < end ? 0 : LOWEST;
        if (token < end)
        {
            if (token < first_own)
            {
                uint block = block_table.Load(blocks + 4 * (token / BLOCK_TOKENS));
                add_cached_scores(
                    cache_element(block, 0, constants.kv_heads, kv_head, token, D), scores);
                values[thread] = cache_element(block, 1, constants.kv_heads, kv_head, token, D);
            }
            else
            {
                uint own = token - first_own;
                add_own_scores(own, scores);
                values[thread] = OWN | ((first_row + own) * constants.kv_heads + kv_head) * D;
            }
        }
        [unroll] for (uint w = 0; w < HEADS; w++)
            weights[w][thread] = scores[w];
        GroupMemoryBarrierWithGroupSync();
        if (thread < 8 * HEADS)
        {
            float highest = LOWEST;
            for (uint i = 0; i < THREADS / 8; i++)
                highest = max(highest, weights[thread / 8][8 * i + thread % 8]);
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
            sums[m] *= shrink;
            weights[m][thread] = token < end ? exp(scores[m] - highest) : 0;
        }
        GroupMemoryBarrierWithGroupSync();
        if (split < splits)
        {
            uint count = min(THREADS, end - base);
            for (uint j = split; j < count; j += VALUES_AT_ONCE * splits)
            {
                float4 elements[VALUES_AT_ONCE];
                [unroll] for (uint e = 0; e < VALUES_AT_ONCE; e++)
                    elements[e] = load_value(values[min(j + e * splits, count - 1)], lane);
                [unroll] for (uint f = 0; f < VALUES_AT_ONCE; f++)
                {
                    uint one = j + f * splits;
                    [unroll] for (uint h = 0; h < HEADS; h++)
                    {
                        float weight = one < count ? weights[h][min(one, count - 1)] : 0;
                        total[h] += weight;
                        sums[h] += weight * elements[f];
                    }
                }
            }
        }
        GroupMemoryBarrierWithGroupSync();
    }

    [unroll] for (uint o = 0; o < HEADS; o++)
    {
        shared_sums[thread] = sums[o];
        if (lane == 0)
            if (split < splits)
                totals[split] = total[o];
        GroupMemoryBarrierWithGroupSync();
        if (split == 0)
            if (o < heads)
            {
                float4 sum = 0;
                float whole = 0;
                for (uint i = 0; i < splits; i++)
                {
                    sum += shared_sums[i * quads + lane];
                    whole += totals[i];
                }
                uint entry = (t * constants.query_heads + first_head + o) * constants.parts + part;
                float factor = constants.parts == 1 ? 1.0 / whole : 1.0;
                output.Store4(4 * (entry * D + 4 * lane), asuint(sum * factor));
                if (constants.parts > 1)
                    if (lane == 0)
                        output.Store2(
                            4 * (constants.ml_offset + 2 * entry),
                            asuint(float2(largest[o], whole)));
            }
        GroupMemoryBarrierWithGroupSync();
    }
}
