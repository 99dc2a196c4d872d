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
//             A single row of x is read where it is needed, a piece of 4 to 16 columns for ROWS rows
//             at once: no lane waits for another before the end. Several rows come tile by tile
//             through groupshared memory, where the lanes' units lie side by side.
// Reads       x, norm, weight, bias; gate, residual (or up_weight, up_bias); of blocks the weights
//             once more, as bytes
// Writes      output
// Defines     those of weight.hlsli; TOKENS, ROWS, GATED; DEPTH, the pieces whose loads a lane has
//             under way together if TOKENS = 1; ODD_COLUMNS = 1: K is no whole number of
//             units, so elements past the end of a row are zeros (what follows there in memory may
//             be NaN)

#include "common.hlsli"
#include "weight.hlsli"

struct Constants
{
    uint tokens;         // T
    uint outputs;        // N
    uint columns;        // K
    uint chunks;         // of a row of weights
    uint row_vectors;    // 16-byte words of a row of weights
    uint lanes;          // of a team
    uint follows;        // the bits below
    uint output_stride;  // elements from a row of the output to the next
    float eps;
};
static const uint HAS_NORM = 1;
static const uint HAS_BIAS = 2;
static const uint HAS_UP_BIAS = 4;
static const uint HAS_GATE = 4;
static const uint HAS_RESIDUAL = 8;

CONSTANTS(Constants);
#if ODD_COLUMNS
#define Columns ByteAddressBuffer
#else
#define Columns StructuredBuffer<float4>
#endif
Columns x : register(t0);
Columns norm : register(t1);
StructuredBuffer<uint4> weight : register(t2);
ByteAddressBuffer bias : register(t3);
#if GATED
StructuredBuffer<uint4> up_weight : register(t4);
ByteAddressBuffer up_bias : register(t5);
#else
ByteAddressBuffer gate : register(t4);
ByteAddressBuffer residual : register(t5);
#endif
#if WEIGHT_KIND == 3
ByteAddressBuffer weight_bytes : register(t6);
#if GATED
ByteAddressBuffer up_weight_bytes : register(t7);
#endif
#endif
RWByteAddressBuffer output : register(u0);

static const uint THREADS = 128;
static const uint PRODUCTS = ROWS * (1 + GATED);  // of a row of x
static const uint SUMS = TOKENS * PRODUCTS;
// The threads' sums at the end, four of them in an element: squares of x first.
static const uint SQUARE_PLACES = (TOKENS + 3) / 4;
static const uint PLACES = SQUARE_PLACES + (SUMS + 3) / 4;

#if TOKENS == 1
static const uint TILE_VECTORS = 0;
#if WEIGHT_KIND == 3
#define Piece Half
static const uint PIECE_VECTORS = 4;
#else
#define Piece Unit
static const uint PIECE_VECTORS = UNIT_VECTORS;
#endif
#else
static const uint TILE_VECTORS = 512 / TOKENS;
static const uint TILE_UNITS = TILE_VECTORS / UNIT_VECTORS;
#if WEIGHT_KIND == 3
static const uint GROUP_VECTORS = UNIT_VECTORS / GROUPS;
#else
static const uint GROUP_VECTORS = UNIT_VECTORS;
#endif
static const uint TILE_GROUPS = TILE_VECTORS / GROUP_VECTORS;
#endif
static const uint SCRATCH =
    PLACES * THREADS > TOKENS * TILE_VECTORS ? PLACES * THREADS : TOKENS * TILE_VECTORS;

// x as [t][vector of a unit][unit]; at the end, the sums as [place][thread].
groupshared float4 scratch[SCRATCH];
#if TOKENS > 1 && WEIGHT_KIND == 3
groupshared float group_inputs[TOKENS * TILE_GROUPS];
#endif

// Columns 4 · vec … of a row that starts at element `first`.
float4 load_columns(Columns buffer, uint first, uint vec)
{
#if ODD_COLUMNS
    float4 values = 0;
    [unroll] for (uint i = 0; i < 4; i++)
        if (4 * vec + i < constants.columns)
            values[i] = load_float(buffer, first + 4 * vec + i);
    return values;
#else
    return buffer[first / 4 + vec];
#endif
}

#if TOKENS == 1

Piece load_product(uint product, uint row, uint number)
{
#if WEIGHT_KIND == 3
#if GATED
    if (product >= ROWS)
        return load_piece(up_weight, up_weight_bytes, row, constants.chunks, number);
#endif
    return load_piece(weight, weight_bytes, row, constants.chunks, number);
#else
#if GATED
    if (product >= ROWS)
        return load_piece(up_weight, row, number);
#endif
    return load_piece(weight, row, number);
#endif
}

void add_products(
    uint rows[ROWS], uint lane, uint pieces, inout float sums[1][PRODUCTS], inout float squares[1])
{
    for (uint start = 0; start < pieces; start += DEPTH * constants.lanes)
    {
        Piece piece[DEPTH][PRODUCTS];
        float4 inputs[DEPTH][PIECE_VECTORS];
        [unroll] for (uint d = 0; d < DEPTH; d++)
        {
            // The whole team goes on or not.
            if (start + d * constants.lanes < pieces)
            {
                uint number = start + d * constants.lanes + lane;
                [unroll] for (uint p = 0; p < PRODUCTS; p++)
                    piece[d][p] = load_product(p, rows[p % ROWS], min(number, pieces - 1));
                [unroll] for (uint v = 0; v < PIECE_VECTORS; v++)
                {
                    inputs[d][v] = load_columns(x, 0, piece_vector(min(number, pieces - 1), v));
                    inputs[d][v] = number < pieces ? inputs[d][v] : 0;
                }
            }
            else
            {
                [unroll] for (uint p = 0; p < PRODUCTS; p++)
                    piece[d][p] = (Piece)0;
                [unroll] for (uint v = 0; v < PIECE_VECTORS; v++)
                    inputs[d][v] = 0;
            }
        }
        if (constants.follows & HAS_NORM)
        {
            float4 scales[DEPTH][PIECE_VECTORS];
            [unroll] for (uint d = 0; d < DEPTH; d++)
                [unroll] for (uint v = 0; v < PIECE_VECTORS; v++)
                {
                    uint number = min(start + d * constants.lanes + lane, pieces - 1);
                    scales[d][v] = load_columns(norm, 0, piece_vector(number, v));
                }
            [unroll] for (uint e = 0; e < DEPTH; e++)
                [unroll] for (uint v = 0; v < PIECE_VECTORS; v++)
                {
                    squares[0] += dot(inputs[e][v], inputs[e][v]);
                    inputs[e][v] *= scales[e][v];
                }
        }
        [unroll] for (uint e = 0; e < DEPTH; e++)
        {
            uint number = start + e * constants.lanes + lane;
            [unroll] for (uint p = 0; p < PRODUCTS; p++)
                sums[0][p] += piece_product(piece[e][p], number, inputs[e]);
        }
    }
    // Every team has summed all squares, and all teams are added.
    squares[0] *= float(constants.lanes) / float(THREADS);
}

#else

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
