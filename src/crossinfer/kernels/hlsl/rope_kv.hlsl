// rope_kv: rotates queries (in place) and keys (rope.hlsli), and writes keys and values to the KV
// cache.
//
// Shapes      q f32 [T, Hq, D], k and v f32 [T, Hkv, D], table f32 [P, D/2, 2], the batch's tables,
//             cache [blocks, 2, Hkv, 16, D]; D a multiple of 4
// Dispatch    grid (⌈(Hq + 2 Hkv) · D / 4 / 64⌉, T): a thread takes four elements of a head of q, k
//             or v: two pairs. Rows of padding are left alone.
// Reads       k, v, table, query_start, kv_len, block_table; q
// Writes      q, cache
// Defines     CACHE_HALF, INTERLEAVED

#include "common.hlsli"
#include "batch.hlsli"
#include "rope.hlsli"

struct Constants
{
    uint query_heads;
    uint kv_heads;
    uint head_dim;
    uint sequences;
    uint table_blocks;
};
CONSTANTS(Constants);
ByteAddressBuffer k : register(t0);
ByteAddressBuffer v : register(t1);
StructuredBuffer<float4> table : register(t2);
ByteAddressBuffer query_start : register(t3);
ByteAddressBuffer kv_len : register(t4);
ByteAddressBuffer block_table : register(t5);
RWByteAddressBuffer q : register(u0);
RWByteAddressBuffer cache : register(u1);

void store_pair(uint element, float2 values)
{
#if CACHE_HALF
    cache.Store(2 * element, pack_halves(values));
#else
    cache.Store2(4 * element, asuint(values));
#endif
}

[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint t = group.y;
    uint quarter = constants.head_dim / 4;
    uint item = 64 * group.x + thread;
    uint head = item / quarter, part = item % quarter;
    if (head >= constants.query_heads + 2 * constants.kv_heads)
        return;
    uint sequence = sequence_of(query_start, constants.sequences, t);
    if (sequence == constants.sequences)
        return;
    uint position = position_of(query_start, kv_len, sequence, t);

    bool is_query = head < constants.query_heads;
    bool is_value = head >= constants.query_heads + constants.kv_heads;
    uint kv_head = (head - constants.query_heads) % constants.kv_heads;
    uint2 elements = part_elements(part, constants.head_dim);
    uint first = elements.x, second = elements.y;
    uint row = is_query ? (t * constants.query_heads + head) * constants.head_dim
                        : (t * constants.kv_heads + kv_head) * constants.head_dim;
    float2 x, y;
    if (is_query)
    {
        x = asfloat(q.Load2(4 * (row + first)));
        y = asfloat(q.Load2(4 * (row + second)));
    }
    else if (is_value)
    {
        x = asfloat(v.Load2(4 * (row + first)));
        y = asfloat(v.Load2(4 * (row + second)));
    }
    else
    {
        x = asfloat(k.Load2(4 * (row + first)));
        y = asfloat(k.Load2(4 * (row + second)));
    }
    if (!is_value)
        rotate_part(x, y, load_turns(table, position, part, constants.head_dim));
    if (is_query)
    {
        q.Store2(4 * (row + first), asuint(x));
        q.Store2(4 * (row + second), asuint(y));
        return;
    }
    uint entry = sequence * constants.table_blocks + position / BLOCK_TOKENS;
    uint element = cache_element(
        block_table.Load(4 * entry), is_value, constants.kv_heads, kv_head, position,
        constants.head_dim);
    store_pair(element + first, x);
    store_pair(element + second, y);
}
