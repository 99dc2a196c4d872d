// Products of few rows with a weight, and what goes with them in a layer of a model:
//
//     y[t, n] = Σ_k x'[t, k] · weight[n, k] + bias[n]        x' = x, or its rms_norm over k
//     output  = act(gate) · y + residual                     act(gate) = silu(gate), or 1 without
//     output  = silu(y) · z                                  GATED: z as y, of up_weight and up_bias
//
// The root of rms_norm is a factor of y: x'[t, k] = x[t, k] · norm[k] / sqrt(mean(x[t]²) + eps), so
// no group waits for another, or for itself.
//
// Shapes      x f32 [T, K], norm f32 [K], weight and up_weight [N, K] of one storage, bias and
//             up_bias f32 [N], gate, residual and output f32 [T, N]
// Dispatch    ⌈T / TOKENS⌉ layers in z of groups of 128 threads, cut into teams of `lanes` (a power
//             of two); a team computes ROWS neighbouring outputs for TOKENS rows of x. Its lanes
//             take the pieces of a row in turn, so that they read neighbouring words, and add up
//             their sums at the end. Each layer reads each weight once, from memory.
//             A single row of x is read where it is needed, a piece of 4 to 16 columns for ROWS
//             rows at once: no lane waits for another before the end. Several rows come tile by tile
//             through groupshared memory, where the lanes' units lie side by side.
//             With INTEGER_DOTS, x' before the root is rounded to bytes: see activations.py.
// Reads       x, norm, weight, bias; gate, residual (or up_weight, up_bias); of blocks the weights
//             once more, as bytes
// Writes      output
// Defines     those of weight.hlsli; TOKENS, ROWS, GATED; INTEGER_DOTS, for TOKENS = 1 and blocks;
//             DEPTH, the pieces whose loads a lane has under way together if TOKENS = 1;
//             ODD_COLUMNS = 1: K is no whole number of units, so elements past the end of a row
//             are zeros (what follows there in memory may be NaN)

#include "common.hlsli"
#include "weight.hlsli"
#include "linear_vec.hlsli"
#if INTEGER_DOTS
#include "linear_vec_dot.hlsli"
#elif TOKENS == 1
#include "linear_vec_one.hlsli"
#else
#include "linear_vec_tiles.hlsli"
#endif

// Adds to an element of `scratch` those at the distances left, 2 · left … below `width`.
void gather(uint at, uint left, uint width)
{
    float4 sum = scratch[at] + scratch[at + left];
    if (width > 2)
        sum += scratch[at + 2 * left] + scratch[at + 3 * left];
    scratch[at] = sum;
}

// Adds the threads' squares over the group, and their sums over the team.
void add_up(float sums[TOKENS][PRODUCTS], float squares[TOKENS], uint thread, uint lane)
{
    [unroll] for (uint t = 0; t < TOKENS; t++)
        scratch[t / 4 * THREADS + thread][t % 4] = squares[t];
    [unroll] for (uint i = 0; i < SUMS; i++)
        scratch[(SQUARE_PLACES + i / 4) * THREADS + thread][i % 4] =
            sums[i / PRODUCTS][i % PRODUCTS];
    uint width = constants.lanes, group_width = constants.follows & HAS_NORM ? THREADS : 1;
    while (max(width, group_width) > 1)
    {
        uint left = (width + 2) / 4, group_left = (group_width + 2) / 4;
        GroupMemoryBarrierWithGroupSync();
        if (thread < group_left)
            [unroll] for (uint q = 0; q < SQUARE_PLACES; q++)
                gather(q * THREADS + thread, group_left, group_width);
        if (lane < left)
            [unroll] for (uint j = SQUARE_PLACES; j < PLACES; j++)
                gather(j * THREADS + thread, left, width);
        width = max(left, 1);
        group_width = max(group_left, 1);
    }
    GroupMemoryBarrierWithGroupSync();
}

// The sum of product `p` for row `t` of x; `team` is the team's first thread.
float product_of(uint t, uint p, uint team)
{
    uint i = t * PRODUCTS + p;
    float sum = scratch[(SQUARE_PLACES + i / 4) * THREADS + team][i % 4];
    if (constants.follows & HAS_NORM)
    {
        float square = scratch[t / 4 * THREADS][t % 4];
        sum *= 1.0 / sqrt(square / float(constants.columns) + constants.eps);
    }
    return sum;
}

[numthreads(128, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint lanes = constants.lanes;
    uint lane = thread & (lanes - 1);
    uint first = (group_number(group) * (THREADS / lanes) + thread / lanes) * ROWS;
    uint first_t = TOKENS * group.z;

    uint rows[ROWS];
    [unroll] for (uint r = 0; r < ROWS; r++)
        rows[r] = 16 * (min(first + r, constants.outputs - 1) * constants.row_vectors);
    float sums[TOKENS][PRODUCTS], squares[TOKENS];
    [unroll] for (uint t = 0; t < TOKENS; t++)
    {
        squares[t] = 0;
        [unroll] for (uint p = 0; p < PRODUCTS; p++)
            sums[t][p] = 0;
    }
#if TOKENS == 1
    uint pieces = (constants.columns + 4 * PIECE_VECTORS - 1) / (4 * PIECE_VECTORS);
    add_products(rows, lane, pieces, sums, squares);
#else
    uint units = (constants.columns + 4 * UNIT_VECTORS - 1) / (4 * UNIT_VECTORS);
    add_tiles(rows, first_t, thread, lane, units, sums, squares);
    GroupMemoryBarrierWithGroupSync();
#endif
    add_up(sums, squares, thread, lane);

    for (uint s = lane; s < TOKENS * ROWS; s += lanes)
    {
        uint row = s / ROWS, r = s % ROWS, n = first + r;
        if (first_t + row >= constants.tokens || n >= constants.outputs)
            continue;
        uint at = (first_t + row) * constants.output_stride + n;
        float y = product_of(row, r, thread - lane);
        if (constants.follows & HAS_BIAS)
            y += load_float(bias, n);
#if GATED
        float z = product_of(row, ROWS + r, thread - lane);
        if (constants.follows & HAS_UP_BIAS)
            z += load_float(up_bias, n);
        y = silu(y) * z;
#else
        if (constants.follows & HAS_GATE)
            y *= silu(load_float(gate, at));
        if (constants.follows & HAS_RESIDUAL)
            y += load_float(residual, at);
#endif
        output.Store(4 * at, asuint(y));
    }
}
