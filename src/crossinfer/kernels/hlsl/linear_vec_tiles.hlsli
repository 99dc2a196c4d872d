// linear_vec with several rows of x, which come tile by tile through groupshared memory.

Unit load_product(uint product, uint row, uint number)
{
#if WEIGHT_KIND == 3
#if GATED
    if (product >= ROWS)
        return load_unit(up_weight, up_weight_bytes, row, constants.chunks, number);
#endif
    return load_unit(weight, weight_bytes, row, constants.chunks, number);
#else
#if GATED
    if (product >= ROWS)
        return load_unit(up_weight, row, number);
#endif
    return load_unit(weight, row, number);
#endif
}

// A tile of rows `first_t` … of x that starts at unit `base`; a thread takes a group of columns at
// once.
void load_tile(uint first_t, uint base, uint thread, inout float squares[TOKENS])
{
    uint vectors = (constants.columns + 3) / 4;
    for (uint i = thread; i < TOKENS * TILE_GROUPS; i += THREADS)
    {
        uint t = i / TILE_GROUPS, first = GROUP_VECTORS * (i % TILE_GROUPS);
        uint row = min(first_t + t, constants.tokens - 1) * constants.columns;
        float sum = 0, square = 0;
        [unroll] for (uint v = 0; v < GROUP_VECTORS; v++)
        {
            uint vec = UNIT_VECTORS * base + first + v;
            float4 values = 0;
            if (vec < vectors)
            {
                values = load_columns(x, row, vec);
                if (constants.follows & HAS_NORM)
                {
                    square += dot(values, values);
                    values *= load_columns(norm, 0, vec);
                }
            }
            uint place = (first + v) % UNIT_VECTORS * TILE_UNITS + first / UNIT_VECTORS;
            scratch[t * TILE_VECTORS + place] = values;
            sum += dot(values, 1);
        }
        [unroll] for (uint s = 0; s < TOKENS; s++)
            squares[s] += s == t ? square : 0;
#if WEIGHT_KIND == 3
        group_inputs[i] = sum;
#endif
    }
}

// What unit `number` of the tile, which is unit `whole` of a row, adds.
void add_unit(Unit unit[PRODUCTS], uint number, uint whole, inout float sums[TOKENS][PRODUCTS])
{
#if WEIGHT_KIND == 3
    [unroll] for (uint g = 0; g < GROUPS; g++)
    {
        float parts[TOKENS][PRODUCTS];
        [unroll] for (uint a = 0; a < SUMS; a++)
            parts[a / PRODUCTS][a % PRODUCTS] = 0;
        [unroll] for (uint v = g * GROUP_VECTORS; v < (g + 1) * GROUP_VECTORS; v++)
        {
            float4 values[PRODUCTS];
            [unroll] for (uint p = 0; p < PRODUCTS; p++)
                values[p] = unit_values(unit[p], v);
            [unroll] for (uint t = 0; t < TOKENS; t++)
            {
                float4 inputs = scratch[t * TILE_VECTORS + v * TILE_UNITS + number];
                [unroll] for (uint q = 0; q < PRODUCTS; q++)
                    parts[t][q] += dot(values[q], inputs);
            }
        }
        float2 lines[PRODUCTS];
        [unroll] for (uint l = 0; l < PRODUCTS; l++)
            lines[l] = group_line(unit[l].factors, unit[l].scale_codes, whole, g);
        [unroll] for (uint s = 0; s < TOKENS; s++)
        {
            float inputs = group_inputs[s * TILE_GROUPS + GROUPS * number + g];
            [unroll] for (uint r = 0; r < PRODUCTS; r++)
                sums[s][r] += lines[r].x * parts[s][r] + lines[r].y * inputs;
        }
    }
#else
    [unroll] for (uint v = 0; v < UNIT_VECTORS; v++)
        [unroll] for (uint t = 0; t < TOKENS; t++)
        {
            float4 inputs = scratch[t * TILE_VECTORS + v * TILE_UNITS + number];
            [unroll] for (uint p = 0; p < PRODUCTS; p++)
                sums[t][p] += dot(unit_values(unit[p], v), inputs);
        }
#endif
}

void add_tiles(
    uint rows[ROWS], uint first_t, uint thread, uint lane, uint units,
    inout float sums[TOKENS][PRODUCTS], inout float squares[TOKENS])
{
    // The next unit is on its way while x is copied and while this one is computed.
    Unit next[PRODUCTS];
    [unroll] for (uint n = 0; n < PRODUCTS; n++)
        next[n] = load_product(n, rows[n % ROWS], min(lane, units - 1));
    for (uint base = 0; base < units; base += TILE_UNITS)
    {
        if (base > 0)
            GroupMemoryBarrierWithGroupSync();
        load_tile(first_t, base, thread, squares);
        GroupMemoryBarrierWithGroupSync();
        uint count = min(TILE_UNITS, units - base);
        for (uint number = lane; number < count; number += constants.lanes)
        {
            Unit unit[PRODUCTS];
            uint following =
                number + constants.lanes < count ? number + constants.lanes : TILE_UNITS + lane;
            [unroll] for (uint p = 0; p < PRODUCTS; p++)
            {
                unit[p] = next[p];
                next[p] = load_product(p, rows[p % ROWS], min(base + following, units - 1));
            }
            add_unit(unit, number, base + number, sums);
        }
    }
}
