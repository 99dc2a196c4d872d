// linear for few rows: y[t, n] = Σ_k x[t, k] · weight[n, k] and what follows it (input.hlsli).
//
// Shapes      x f32 [T, K], weight [N, K] of any storage, bias f32 [N], gate and residual
//             f32 [T, N], output f32 [T, N]
// Dispatch    ⌈T / TOKENS⌉ layers in z of groups of 128 threads, cut into teams of `lanes` (a power
//             of two); a team computes ROWS neighbouring outputs for TOKENS rows of x. Its lanes take the units of a row in turn, so
//             that they read neighbouring 16-byte words, and add up their sums at the end.
//             Each layer reads each weight once, from memory; x comes tile by tile through
//             groupshared memory, where the lanes' units lie side by side.
// Reads       x, weight, bias, gate, residual
// Writes      output
// Defines     those of weight.hlsli and input.hlsli; TOKENS, ROWS

#include "common.hlsli"
#include "weight.hlsli"
#include "input.hlsli"

static const uint THREADS = 128;
static const uint TILE_VECTORS = 512 / TOKENS;
static const uint TILE_UNITS = TILE_VECTORS / UNIT_VECTORS;
static const uint SUMS = TOKENS * ROWS;
#if WEIGHT_KIND == 3
static const uint GROUP_VECTORS = UNIT_VECTORS / GROUPS;
#else
static const uint GROUP_VECTORS = UNIT_VECTORS;
#endif
static const uint TILE_GROUPS = TILE_VECTORS / GROUP_VECTORS;

// x as [t][vector of a unit][unit]; at the end, the threads' sums, four of them in an element.
groupshared float4 tile[512];
#if WEIGHT_KIND == 3
groupshared float group_inputs[TOKENS * TILE_GROUPS];
#endif

// A tile of rows `first_t` … of x that starts at unit `base`; a thread takes a group of columns at
// once.
void load_tile(uint first_t, uint base, uint thread)
{
    uint vectors = (constants.columns + 3) / 4;
    for (uint i = thread; i < TOKENS * TILE_GROUPS; i += THREADS)
    {
        uint t = i / TILE_GROUPS, group = i % TILE_GROUPS;
        uint first = GROUP_VECTORS * group;
        float sum = 0;
        [unroll] for (uint v = 0; v < GROUP_VECTORS; v++)
        {
            uint vec = UNIT_VECTORS * base + first + v;
            float4 values = 0;
            if (vec < vectors)
                values = load_input(min(first_t + t, constants.tokens - 1), vec);
            uint place = (first + v) % UNIT_VECTORS * TILE_UNITS + first / UNIT_VECTORS;
            tile[t * TILE_VECTORS + place] = values;
            sum += dot(values, 1);
        }
#if WEIGHT_KIND == 3
        group_inputs[i] = sum;
#endif
    }
}

float4 tile_input(uint t, uint unit, uint v)
{
    return tile[t * TILE_VECTORS + v * TILE_UNITS + unit];
}

[numthreads(128, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint lanes = constants.lanes;
    uint lane = thread & (lanes - 1);
    uint team = group_number(group) * (THREADS / lanes) + thread / lanes;
    uint first = team * ROWS;
    uint first_t = TOKENS * group.z;
    uint units = (constants.columns + 4 * UNIT_VECTORS - 1) / (4 * UNIT_VECTORS);

    uint rows[ROWS];
    float sums[TOKENS][ROWS];
    [unroll] for (uint r = 0; r < ROWS; r++)
    {
        rows[r] = weight_row(min(first + r, constants.outputs - 1));
        [unroll] for (uint t = 0; t < TOKENS; t++)
            sums[t][r] = 0;
    }
    // The next unit is on its way while x is copied and while this one is computed.
    Unit next[ROWS];
    [unroll] for (uint n = 0; n < ROWS; n++)
        next[n] = load_unit(weight, rows[n], constants.chunks, min(lane, units - 1));
    for (uint base = 0; base < units; base += TILE_UNITS)
    {
        if (base > 0)
            GroupMemoryBarrierWithGroupSync();
        load_tile(first_t, base, thread);
        GroupMemoryBarrierWithGroupSync();
        uint count = min(TILE_UNITS, units - base);
        for (uint number = lane; number < count; number += lanes)
        {
            Unit unit[ROWS];
            uint following = number + lanes < count ? number + lanes : TILE_UNITS + lane;
            [unroll] for (uint r = 0; r < ROWS; r++)
            {
                unit[r] = next[r];
                next[r] = load_unit(
                    weight, rows[r], constants.chunks, min(base + following, units - 1));
            }
#if WEIGHT_KIND == 3
            [unroll] for (uint g = 0; g < GROUPS; g++)
            {
                float parts[TOKENS][ROWS];
                [unroll] for (uint t = 0; t < TOKENS; t++)
                    [unroll] for (uint r = 0; r < ROWS; r++)
                        parts[t][r] = 0;
                [unroll] for (uint v = g * GROUP_VECTORS; v < (g + 1) * GROUP_VECTORS; v++)
                {
                    float4 values[ROWS];
                    [unroll] for (uint r = 0; r < ROWS; r++)
                        values[r] = unit_values(unit[r], v);
                    [unroll] for (uint t = 0; t < TOKENS; t++)
                    {
                        float4 inputs = tile_input(t, number, v);
                        [unroll] for (uint r = 0; r < ROWS; r++)
                            parts[t][r] += dot(values[r], inputs);
                    }
                }
                [unroll] for (uint t = 0; t < TOKENS; t++)
                {
                    float inputs = group_inputs[t * TILE_GROUPS + GROUPS * number + g];
                    [unroll] for (uint r = 0; r < ROWS; r++)
                        sums[t][r] += unit[r].slope[g] * parts[t][r] + unit[r].level[g] * inputs;
                }
            }
#else
            [unroll] for (uint v = 0; v < UNIT_VECTORS; v++)
            {
                [unroll] for (uint t = 0; t < TOKENS; t++)
                {
                    float4 inputs = tile_input(t, number, v);
                    [unroll] for (uint r = 0; r < ROWS; r++)
                        sums[t][r] += dot(unit_values(unit[r], v), inputs);
                }
            }
#endif
        }
    }

    GroupMemoryBarrierWithGroupSync();
    [unroll] for (uint i = 0; i < SUMS; i++)
        tile[i / 4 * THREADS + thread][i % 4] = sums[i / ROWS][i % ROWS];
    for (uint distance = lanes / 2; distance > 0; distance /= 2)
    {
        GroupMemoryBarrierWithGroupSync();
        if (lane < distance)
            [unroll] for (uint j = 0; j < (SUMS + 3) / 4; j++)
                tile[j * THREADS + thread] += tile[j * THREADS + thread + distance];
    }
    GroupMemoryBarrierWithGroupSync();
    for (uint s = lane; s < SUMS; s += lanes)
    {
        uint t = first_t + s / ROWS, n = first + s % ROWS;
        if (t < constants.tokens && n < constants.outputs)
            store_output(tile[s / 4 * THREADS + thread - lane][s % 4], t, n);
    }
}
