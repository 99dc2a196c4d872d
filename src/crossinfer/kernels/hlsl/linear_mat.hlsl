// linear for many rows: y = x · weightᵀ by tiles, and what follows it (input.hlsli).
//
// Shapes      x f32 [T, K], weight [N, K] of any storage, bias f32 [N], gate and residual
//             f32 [T, N], output f32 [T, N]
// Dispatch    grid (⌈N / TILE_N⌉, ⌈T / TILE_T⌉): a group computes a tile of the output,
//             a thread PART_T × PART_N elements of it. Steps of 16 columns go through
//             groupshared memory, weights decoded; while one is computed the next is in registers.
// Reads       x, weight, bias, gate, residual
// Writes      output
// Defines     those of weight.hlsli and input.hlsli; TILE_T, TILE_N, PART_T, PART_N

#include "common.hlsli"
#include "weight.hlsli"
#include "input.hlsli"

static const uint STEP_VECTORS = 4;
static const uint STEP = 4 * STEP_VECTORS;
static const uint THREADS_N = TILE_N / PART_N;
static const uint THREADS_T = TILE_T / PART_T;
static const uint THREADS = THREADS_T * THREADS_N;
static const uint LOADS_X = (TILE_T * STEP_VECTORS + THREADS - 1) / THREADS;
static const uint LOADS_W = TILE_N * STEP_VECTORS / THREADS;

// [column][row / 4]; which four rows lie where is turned by the column's vector (`place`), so that
// neither the writes below nor the reads meet in one bank.
groupshared float4 tile_x[STEP][TILE_T / 4];
groupshared float4 tile_w[STEP][TILE_N / 4];

uint place(uint row_vector, uint vec)
{
    return row_vector ^ (2 * vec);
}

float4 fetch_x(uint item, uint first_t, uint step)
{
    uint t = first_t + item / STEP_VECTORS;
    uint vec = step * STEP_VECTORS + item % STEP_VECTORS;
    if (t >= constants.tokens || 4 * vec >= constants.columns)
        return 0;
    return load_input(t, vec);
}

float4 fetch_w(uint item, uint first_n, uint step)
{
    uint n = first_n + item / STEP_VECTORS;
    uint vec = step * STEP_VECTORS + item % STEP_VECTORS;
    if (n >= constants.outputs || 4 * vec >= constants.columns)
        return 0;
    return load_weights(weight, weight_row(n), constants.chunks, vec);
}

[numthreads(TILE_T / PART_T * (TILE_N / PART_N), 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint first_n = TILE_N * group.x;
    uint first_t = TILE_T * group.y;
    uint column_n = thread % THREADS_N;
    uint column_t = thread / THREADS_N;
    uint steps = (constants.columns + STEP - 1) / STEP;

    float sums[PART_T][PART_N];
    [unroll] for (uint a = 0; a < PART_T; a++)
        [unroll] for (uint b = 0; b < PART_N; b++)
            sums[a][b] = 0;

    float4 next_x[LOADS_X];
    float4 next_w[LOADS_W];
    for (uint step = 0; step <= steps; step++)
    {
        if (step > 0)
        {
            GroupMemoryBarrierWithGroupSync();
            [unroll] for (uint i = 0; i < LOADS_X; i++)
            {
                uint item = THREADS * i + thread;
                uint row = item / STEP_VECTORS, vec = item % STEP_VECTORS;
                if (row < TILE_T)
                    [unroll] for (uint k = 0; k < 4; k++)
                        tile_x[4 * vec + k][place(row / 4, vec)][row % 4] = next_x[i][k];
            }
            [unroll] for (uint j = 0; j < LOADS_W; j++)
            {
                uint item = THREADS * j + thread;
                uint row = item / STEP_VECTORS, vec = item % STEP_VECTORS;
                [unroll] for (uint k = 0; k < 4; k++)
                    tile_w[4 * vec + k][place(row / 4, vec)][row % 4] = next_w[j][k];
            }
            GroupMemoryBarrierWithGroupSync();
        }
        if (step < steps)
        {
            [unroll] for (uint i = 0; i < LOADS_X; i++)
                next_x[i] = fetch_x(THREADS * i + thread, first_t, step);
            [unroll] for (uint j = 0; j < LOADS_W; j++)
                next_w[j] = fetch_w(THREADS * j + thread, first_n, step);
        }
        if (step > 0)
        {
            [loop] for (uint vec = 0; vec < STEP_VECTORS; vec++)
            {
                [unroll] for (uint k = 0; k < 4; k++)
                {
                    float4 xs[PART_T / 4];
                    float4 ws[PART_N / 4];
                    [unroll] for (uint a = 0; a < PART_T / 4; a++)
                        xs[a] = tile_x[4 * vec + k][place(column_t + a * THREADS_T, vec)];
                    [unroll] for (uint b = 0; b < PART_N / 4; b++)
                        ws[b] = tile_w[4 * vec + k][place(column_n + b * THREADS_N, vec)];
                    [unroll] for (uint m = 0; m < PART_T; m++)
                        [unroll] for (uint n = 0; n < PART_N; n++)
                            sums[m][n] += xs[m / 4][m % 4] * ws[n / 4][n % 4];
                }
            }
        }
    }

    [unroll] for (uint m = 0; m < PART_T; m++)
    {
        uint t = first_t + 4 * (column_t + m / 4 * THREADS_T) + m % 4;
        [unroll] for (uint n = 0; n < PART_N; n++)
        {
            uint output_n = first_n + 4 * (column_n + n / 4 * THREADS_N) + n % 4;
            if (t < constants.tokens && output_n < constants.outputs)
                store_output(sums[m][n], t, output_n);
        }
    }
}
