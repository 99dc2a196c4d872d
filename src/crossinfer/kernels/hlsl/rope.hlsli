// Rotary position embedding of four elements of a head: two pairs.
//
//     (a, b) → (a · c - b · s, a · s + b · c)        (c, s) = table[position, i] for pair i
//
//     INTERLEAVED    pairs are elements (2i, 2i + 1); else (i, i + D/2)

// Where part `part` of a head has its elements: (first, first + 1) and (second, second + 1).
uint2 part_elements(uint part, uint head_dim)
{
#if INTERLEAVED
    return uint2(4 * part, 4 * part + 2);
#else
    return uint2(2 * part, 2 * part + head_dim / 2);
#endif
}

// The elements of a part, rotated; `turns` is (c, s) of its two pairs.
void rotate_part(inout float2 x, inout float2 y, float4 turns)
{
    float2 cosine = turns.xz, sine = turns.yw;
#if INTERLEAVED
    float2 a = float2(x.x, y.x), b = float2(x.y, y.y);
#else
    float2 a = x, b = y;
#endif
    float2 turned_a = a * cosine - b * sine;
    float2 turned_b = a * sine + b * cosine;
#if INTERLEAVED
    x = float2(turned_a.x, turned_b.x);
    y = float2(turned_a.y, turned_b.y);
#else
    x = turned_a;
    y = turned_b;
#endif
}

float4 load_turns(StructuredBuffer<float4> table, uint position, uint part, uint head_dim)
{
    return table[position * (head_dim / 4) + part];
}
