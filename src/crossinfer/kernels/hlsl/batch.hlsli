// The tables of a ragged batch (see `graph/batch.py`), and elements of the paged KV cache.
//
//     CACHE_HALF = 1: the cache is f16, two elements a word; 0: f32

static const uint BLOCK_TOKENS = 16;

// The sequence that row t belongs to; `sequences` for a row of padding. Sequences without rows
// start where the next one does, so the last one that starts at t or before is the one.
uint sequence_of(ByteAddressBuffer query_start, uint sequences, uint t)
{
    if (t >= query_start.Load(4 * sequences))
        return sequences;
    uint low = 0, high = sequences;
    while (high - low > 1)
    {
        uint middle = (low + high) / 2;
        if (query_start.Load(4 * middle) <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// A row's position in its sequence.
uint position_of(ByteAddressBuffer query_start, ByteAddressBuffer kv_len, uint sequence, uint t)
{
    return kv_len.Load(4 * sequence) - query_start.Load(4 * sequence + 4) + t;
}

// The first element of a head's token. `part` is 0 for keys, 1 for values.
uint cache_element(uint block, uint part, uint kv_heads, uint head, uint token, uint head_dim)
{
    uint slot = token % BLOCK_TOKENS;
    return (((2 * block + part) * kv_heads + head) * BLOCK_TOKENS + slot) * head_dim;
}

template <typename Buffer>
float2 load_pair(Buffer cache, uint element)
{
#if CACHE_HALF
    return halves(cache.Load(2 * element));
#else
    return asfloat(cache.Load2(4 * element));
#endif
}

template <typename Buffer>
float4 load_four(Buffer cache, uint element)
{
#if CACHE_HALF
    uint2 words = cache.Load2(2 * element);
    return float4(halves(words.x), halves(words.y));
#else
    return asfloat(cache.Load4(4 * element));
#endif
}
