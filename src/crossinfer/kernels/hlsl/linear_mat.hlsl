// linear for many rows: y = x · weightᵀ by tiles, and what follows it (linear_finish.hlsli).
//
// Shapes      x f32 [T, K], weight [N, K] of any storage, bias f32 [N], gate and residual
//             f32 [T, N], N a multiple of 4; output f32 [splits, T, N]: the sums of each part of
//             K for linear_sum, if there are several, with N padded to a multiple of 4
// Dispatch    grid (⌈T / TILE_T⌉, ⌈N / TILE_N⌉, splits), so that groups that run together share
//             weights: a group computes a tile of the output, a thread PART_T × PART_N elements of
//             it. Steps of 16 columns go through groupshared memory, weights decoded; while one is
//             computed the next is in registers.
// Reads       bias, gate, residual, x, weight
// Writes      output
// Defines     those of weight.hlsli and mat_piece.hlsli; TILE_T, TILE_N, PART_T, PART_N

#include "common.hlsli"
#include "weight.hlsli"
#include "mat_piece.hlsli"
#include "linear_finish.hlsli"

// Structured views: drivers make one load of four words of them, and four of ByteAddressBuffer's.
StructuredBuffer<float4> bias : register(t0);
StructuredBuffer<float4> gate : register(t1);
StructuredBuffer<float4> residual : register(t2);
#if ODD_COLUMNS
ByteAddressBuffer x : register(t3);
#else
StructuredBuffer<float4> x : register(t3);
#endif
PieceBuffer weight : register(t4);
RWStructuredBuffer<float4> output : register(u0);

static const uint STEP_VECTORS = 4;
static const uint STEP = 4 * STEP_VECTORS;
static const uint STEP_PIECES = STEP / 8;
static const uint THREADS_T = TILE_T / PART_T;
static const uint THREADS_N = TILE_N / PART_N;
static const uint THREADS = THREADS_T * THREADS_N;
static const uint LOADS_X = TILE_T * STEP_VECTORS / THREADS;
static const uint LOADS_W = TILE_N * STEP_PIECES / THREADS;

// [column][row / 4]; which four rows lie where is turned by the column's vector (`place`), so that
// neither the writes below nor the reads meet in one bank.
groupshared float4 tile_x[STEP][TILE_T / 4];
groupshared float4 tile_w[STEP][TILE_N / 4];

uint place(uint row_vector, uint vec)
{
    return row_vector ^ (2 * vec);
}

// Vector `vec` of row t of x; zeros past the end of the row.
float4 fetch_x(uint t, uint vec)
{
#if ODD_COLUMNS
    float4 values = 0;
    [unroll] for (uint i = 0; i < 4; i++)
        if (4 * vec + i < constants.columns)
            values[i] = load_float(x, t * constants.columns + 4 * vec + i);
    return values;
#else
    uint vectors = constants.columns / 4;
    float4 values = x[t * vectors + min(vec, vectors - 1)];
    return vec < vectors ? values : 0;
#endif
}

float4 silu_each(float4 x)
{
    return x / (1.0 + exp(-x));
}

[numthreads(TILE_T / PART_T * (TILE_N / PART_N), 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint first_t = TILE_T * group.x;
    uint first_n = TILE_N * group.y;
    uint split = group.z;

    // 32 threads have 4 × 8 parts of the tile. Neighbours read the same weights, or every other
    // one the same of x: some GPUs serve twice as many threads at once then.
    uint lane = thread % 32, wave = thread / 32;
    uint column_t = wave / (THREADS_N / 8) * 4 + lane / 16 * 2 + lane % 2;
    uint column_n = wave % (THREADS_N / 8) * 8 + lane / 2 % 8;

    uint steps = (constants.columns + STEP - 1) / STEP;
    uint first_step = split * constants.split_steps;
    uint end_step = min(first_step + constants.split_steps, steps);
    uint pieces = (constants.columns + 7) / 8;

    // Rows past the end are read from the last one, and not stored.
    uint rows_x[LOADS_X], rows_w[LOADS_W];
    [unroll] for (uint a = 0; a < LOADS_X; a++)
        rows_x[a] = min(first_t + (THREADS * a + thread) / STEP_VECTORS, constants.tokens - 1);
    [unroll] for (uint b = 0; b < LOADS_W; b++)
        rows_w[b] = constants.row_vectors
            * min(first_n + (THREADS * b + thread) / STEP_PIECES, constants.outputs - 1);
    uint vec_x = thread % STEP_VECTORS, piece_w = thread % STEP_PIECES;

    float4 sums[PART_T][PART_N / 4];
    [unroll] for (uint c = 0; c < PART_T; c++)
        [unroll] for (uint d = 0; d < PART_N / 4; d++)
            sums[c][d] = 0;

    float4 next_x[LOADS_X];
    MatPiece next_w[LOADS_W];
    [unroll] for (uint e = 0; e < LOADS_X; e++)
        next_x[e] = fetch_x(rows_x[e], first_step * STEP_VECTORS + vec_x);
    [unroll] for (uint f = 0; f < LOADS_W; f++)
        next_w[f] = load_mat_piece(
            weight, rows_w[f], constants.row_vectors, constants.chunks,
            min(first_step * STEP_PIECES + piece_w, pieces - 1));

    [loop] for (uint step = first_step; step < end_step; step++)
    {
        GroupMemoryBarrierWithGroupSync();
        [unroll] for (uint g = 0; g < LOADS_X; g++)
        {
            uint row = (THREADS * g + thread) / STEP_VECTORS;
            [unroll] for (uint k = 0; k < 4; k++)
                tile_x[4 * vec_x + k][place(row / 4, vec_x)][row % 4] = next_x[g][k];
        }
        [unroll] for (uint h = 0; h < LOADS_W; h++)
        {
            uint row = (THREADS * h + thread) / STEP_PIECES;
            uint piece = step * STEP_PIECES + piece_w;
            [unroll] for (uint side = 0; side < 2; side++)
            {
                float4 values = mat_piece_values(next_w[h], piece, side);
                uint vec = 2 * piece_w + side;
                [unroll] for (uint k = 0; k < 4; k++)
                    tile_w[4 * vec + k][place(row / 4, vec)][row % 4] =
                        piece < pieces ? values[k] : 0;
            }
        }
        GroupMemoryBarrierWithGroupSync();

        uint next = min(step + 1, end_step - 1);
        [unroll] for (uint i = 0; i < LOADS_X; i++)
            next_x[i] = fetch_x(rows_x[i], next * STEP_VECTORS + vec_x);
        [unroll] for (uint j = 0; j < LOADS_W; j++)
            next_w[j] = load_mat_piece(
                weight, rows_w[j], constants.row_vectors, constants.chunks,
                min(next * STEP_PIECES + piece_w, pieces - 1));

        [unroll] for (uint vec = 0; vec < STEP_VECTORS; vec++)
            [unroll] for (uint k = 0; k < 4; k++)
            {
                float4 xs[PART_T / 4], ws[PART_N / 4];
                [unroll] for (uint m = 0; m < PART_T / 4; m++)
                    xs[m] = tile_x[4 * vec + k][place(column_t + m * THREADS_T, vec)];
                [unroll] for (uint n = 0; n < PART_N / 4; n++)
                    ws[n] = tile_w[4 * vec + k][place(column_n + n * THREADS_N, vec)];
                [unroll] for (uint o = 0; o < PART_T; o++)
                    [unroll] for (uint p = 0; p < PART_N / 4; p++)
                        sums[o][p] += xs[o / 4][o % 4] * ws[p];
            }
    }

    // Loads past the ends are moved inside, so that only stores need conditions.
    uint stride = constants.output_stride / 4, last = (constants.outputs - 1) / 4;
    uint first_row = first_t + 4 * column_t, first_vec = first_n / 4 + column_n;
    if (constants.follows & HAS_BIAS)
        [unroll] for (uint r = 0; r < PART_N / 4; r++)
        {
            float4 values = bias[min(first_vec + r * THREADS_N, last)];
            [unroll] for (uint q = 0; q < PART_T; q++)
                sums[q][r] += values;
        }
    if (constants.follows & (HAS_GATE | HAS_RESIDUAL))
        [unroll] for (uint q = 0; q < PART_T; q++)
        {
            uint t = min(first_row + q / 4 * 4 * THREADS_T + q % 4, constants.tokens - 1);
            [unroll] for (uint r = 0; r < PART_N / 4; r++)
            {
                uint at = t * stride + min(first_vec + r * THREADS_N, last);
                if (constants.follows & HAS_GATE)
                    sums[q][r] *= silu_each(gate[at]);
                if (constants.follows & HAS_RESIDUAL)
                    sums[q][r] += residual[at];
            }
        }
    [unroll] for (uint s = 0; s < PART_T; s++)
    {
        uint t = first_row + s / 4 * 4 * THREADS_T + s % 4;
        [unroll] for (uint r = 0; r < PART_N / 4; r++)
        {
            uint vec = first_vec + r * THREADS_N;
            if (t < constants.tokens && vec <= last)
                output[(split * constants.tokens + t) * stride + vec] = sums[s][r];
        }
    }
}
