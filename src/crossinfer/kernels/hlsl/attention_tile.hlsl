// attention for many rows of a sequence: tiles of ROWS rows over TOKENS tokens at a time, with a
// running softmax (Milakov and Gimelshein 2018; Dao et al. 2022):
//
//     m' = max(m, max_j s_j)        l' = l · exp(m - m') + Σ_j exp(s_j - m')
//     o' = o · exp(m - m') + Σ_j exp(s_j - m') · v_j        output = o / l at the end
//
// A row is a token and one of the query heads that share a KV head, heads first, so that they read
// keys and values once.
//
// Shapes      q f32 [T, Hq, D], cache [blocks, 2, Hkv, 16, D], the batch's tables,
//             output f32 [T, Hq, D]; D a multiple of 4 up to LARGEST_HEAD
// Dispatch    grid (tiles, Hkv): the tiles of all sequences, the last one first, since it has most
//             to do; a sequence's last tile may be short, and groups beyond the tiles end at once.
//             A thread has 8 rows of 8 columns of the output, and SCORE_ROWS rows of SCORE_TOKENS
//             scores. Keys go through groupshared memory 16 columns at a time beside the queries,
//             values 16 tokens at a time; what comes next is in registers meanwhile.
// Reads       q, cache, query_start, kv_len, block_table
// Writes      output
// Defines     CACHE_HALF, LARGEST_HEAD, SCORE_ROWS, SCORE_TOKENS

#include "common.hlsli"
#include "batch.hlsli"
#include "attention.hlsli"

ByteAddressBuffer q : register(t0);
ByteAddressBuffer cache : register(t1);
ByteAddressBuffer query_start : register(t2);
ByteAddressBuffer kv_len : register(t3);
ByteAddressBuffer block_table : register(t4);
RWByteAddressBuffer output : register(u0);

static const uint ROWS = 64;
static const uint TOKENS = 64;
static const uint PART = 8;          // rows and columns of the output that a thread has
static const uint STEP_VECTORS = 4;  // of queries and keys at once
static const uint STEP = 4 * STEP_VECTORS;
static const uint HEAD_VECTORS = LARGEST_HEAD / 4;
static const uint THREADS_D = LARGEST_HEAD / PART;
static const uint THREADS_R = ROWS / PART;
static const uint THREADS = THREADS_D * THREADS_R;
static const uint SCORERS_T = TOKENS / SCORE_TOKENS;
static const uint SCORERS_R = ROWS / SCORE_ROWS;
static const uint LOADS_Q = ROWS * STEP_VECTORS / THREADS;
static const uint LOADS_K = TOKENS * STEP_VECTORS / THREADS;
static const uint VALUES = LARGEST_HEAD > 128 ? 8 : 16;  // tokens whose values are there at once
static const uint LOADS_V = VALUES * HEAD_VECTORS / THREADS;

// Queries and keys by columns: [column][row / 4], turned as in linear_mat. Or values by tokens.
groupshared float4 staged[STEP * (ROWS + TOKENS) / 4];
groupshared float4 weights[TOKENS][ROWS / 4];
groupshared float4 partial[SCORERS_T][ROWS / 4];
groupshared float4 shrinks[ROWS / 4];

uint place(uint row_vector, uint vec)
{
    return row_vector ^ (2 * vec);
}

uint query_slot(uint column, uint row_vector)
{
    return column * (ROWS / 4) + row_vector;
}

uint key_slot(uint column, uint row_vector)
{
    return STEP * (ROWS / 4) + column * (TOKENS / 4) + row_vector;
}

float4 load_vector(uint number)
{
#if CACHE_HALF
    uint2 words = cache.Load2(8 * number);
    return float4(halves(words.x), halves(words.y));
#else
    return asfloat(cache.Load4(16 * number));
#endif
}

// The first vector of a token's key (part 0) or value (part 1).
uint cache_vector(uint sequence, uint part, uint kv_head, uint token)
{
    uint block = block_table.Load(4 * (sequence * constants.table_blocks + token / BLOCK_TOKENS));
    uint slot = ((2 * block + part) * constants.kv_heads + kv_head) * BLOCK_TOKENS;
    return (slot + token % BLOCK_TOKENS) * (constants.head_dim / 4);
}

// The first vector of a row of q and of the output.
uint row_vector(uint first_row, uint row, uint sharing, uint kv_head)
{
    uint head = kv_head * sharing + row % sharing;
    return ((first_row + row / sharing) * constants.query_heads + head) * (constants.head_dim / 4);
}

[numthreads(LARGEST_HEAD, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint vectors = constants.head_dim / 4;
    uint kv_head = group.y;
    uint sharing = constants.query_heads / constants.kv_heads;

    // A tile's rows are `first` … `first + rows - 1` of its sequence.
    uint tile = group.x, sequence = constants.sequences, start = 0, all_rows = 0;
    while (sequence > 0)
    {
        sequence--;
        start = query_start.Load(4 * sequence);
        all_rows = (query_start.Load(4 * sequence + 4) - start) * sharing;
        uint tiles = (all_rows + ROWS - 1) / ROWS;
        if (tile < tiles)
        {
            tile = tiles - 1 - tile;
            break;
        }
        tile -= tiles;
        all_rows = 0;
    }
    if (all_rows == 0)
        return;
    uint first = tile * ROWS;
    uint rows = min(ROWS, all_rows - first);
    uint start_position = position_of(query_start, kv_len, sequence, start);
    uint end = start_position + (first + rows - 1) / sharing + 1;
    uint base = first_token(start_position + first / sharing) / TOKENS * TOKENS;

    uint lane = thread % 32, wave = thread / 32;
    uint lane_8 = lane / 2 % 8, lane_4 = lane % 2 + lane / 16 * 2;
    uint scorer_r = wave % (SCORERS_R / 8) * 8 + lane_8;
    uint scorer_t = wave / (SCORERS_R / 8) * 4 + lane_4;
    uint column_d = wave % (THREADS_D / 8) * 8 + lane_8;
    uint column_r = wave / (THREADS_D / 8) * 4 + lane_4;

    uint query_vectors[LOADS_Q];
    [unroll] for (uint i = 0; i < LOADS_Q; i++)
    {
        uint row = (THREADS * i + thread) / STEP_VECTORS;
        query_vectors[i] = row_vector(start, first + min(row, rows - 1), sharing, kv_head);
    }
    uint positions[SCORE_ROWS];
    float largest[SCORE_ROWS], totals[SCORE_ROWS];
    [unroll] for (uint r = 0; r < SCORE_ROWS; r++)
    {
        uint row = 4 * (scorer_r + r / 4 * SCORERS_R) + r % 4;
        positions[r] = start_position + (first + row) / sharing;
        largest[r] = LOWEST;
        totals[r] = 0;
    }
    float sums[PART][PART];
    [unroll] for (uint a = 0; a < PART; a++)
        [unroll] for (uint b = 0; b < PART; b++)
            sums[a][b] = 0;

    [loop] for (; base < end; base += TOKENS)
    {
        uint key_vectors[LOADS_K];
        [unroll] for (uint j = 0; j < LOADS_K; j++)
        {
            uint token = base + (THREADS * j + thread) / STEP_VECTORS;
            key_vectors[j] = cache_vector(sequence, 0, kv_head, min(token, end - 1));
        }
        float scores[SCORE_ROWS][SCORE_TOKENS];
        [unroll] for (uint c = 0; c < SCORE_ROWS; c++)
            [unroll] for (uint d = 0; d < SCORE_TOKENS; d++)
                scores[c][d] = 0;
        float4 next_q[LOADS_Q], next_k[LOADS_K];
        uint vec = thread % STEP_VECTORS;
        [unroll] for (uint e = 0; e < LOADS_Q; e++)
            next_q[e] = asfloat(q.Load4(16 * (query_vectors[e] + min(vec, vectors - 1))));
        [unroll] for (uint f = 0; f < LOADS_K; f++)
            next_k[f] = load_vector(key_vectors[f] + min(vec, vectors - 1));
        [loop] for (uint first_vector = 0; first_vector < vectors; first_vector += STEP_VECTORS)
        {
            // Columns past the end of a head hold whatever is there, and count nothing.
            float scale = first_vector + vec < vectors ? constants.scale : 0;
            GroupMemoryBarrierWithGroupSync();
            [unroll] for (uint g = 0; g < LOADS_Q; g++)
            {
                uint row = (THREADS * g + thread) / STEP_VECTORS;
                [unroll] for (uint k = 0; k < 4; k++)
                    staged[query_slot(4 * vec + k, place(row / 4, vec))][row % 4] =
                        scale * next_q[g][k];
            }
            [unroll] for (uint h = 0; h < LOADS_K; h++)
            {
                uint row = (THREADS * h + thread) / STEP_VECTORS;
                [unroll] for (uint k = 0; k < 4; k++)
                    staged[key_slot(4 * vec + k, place(row / 4, vec))][row % 4] = next_k[h][k];
            }
            GroupMemoryBarrierWithGroupSync();
            uint from = min(first_vector + STEP_VECTORS + vec, vectors - 1);
            [unroll] for (uint e = 0; e < LOADS_Q; e++)
                next_q[e] = asfloat(q.Load4(16 * (query_vectors[e] + from)));
            [unroll] for (uint f = 0; f < LOADS_K; f++)
                next_k[f] = load_vector(key_vectors[f] + from);
            [unroll] for (uint v = 0; v < STEP_VECTORS; v++)
                [unroll] for (uint k = 0; k < 4; k++)
                {
                    float4 qs[SCORE_ROWS / 4], ks[SCORE_TOKENS / 4];
                    [unroll] for (uint m = 0; m < SCORE_ROWS / 4; m++)
                        qs[m] = staged[query_slot(4 * v + k, place(scorer_r + m * SCORERS_R, v))];
                    [unroll] for (uint n = 0; n < SCORE_TOKENS / 4; n++)
                        ks[n] = staged[key_slot(4 * v + k, place(scorer_t + n * SCORERS_T, v))];
                    [unroll] for (uint o = 0; o < SCORE_ROWS; o++)
                        [unroll] for (uint p = 0; p < SCORE_TOKENS; p++)
                            scores[o][p] += qs[o / 4][o % 4] * ks[p / 4][p % 4];
                }
        }

        // The values that come first are on their way while the softmax is computed.
        float4 next_v[LOADS_V];
        [unroll] for (uint l = 0; l < LOADS_V; l++)
        {
            uint item = THREADS * l + thread;
            uint token = base + item / HEAD_VECTORS;
            next_v[l] = load_vector(cache_vector(sequence, 1, kv_head, min(token, end - 1))
                + min(item % HEAD_VECTORS, vectors - 1));
        }
        [unroll] for (uint quad = 0; quad < SCORE_ROWS / 4; quad++)
        {
            float4 highest = LOWEST;
            [unroll] for (uint i = 0; i < 4; i++)
                [unroll] for (uint j = 0; j < SCORE_TOKENS; j++)
                {
                    uint token = base + 4 * (scorer_t + j / 4 * SCORERS_T) + j % 4;
                    uint position = positions[4 * quad + i];
                    if (token > position || token < first_token(position))
                        scores[4 * quad + i][j] = LOWEST;
                    highest[i] = max(highest[i], scores[4 * quad + i][j]);
                }
            partial[scorer_t][scorer_r + quad * SCORERS_R] = highest;
        }
        GroupMemoryBarrierWithGroupSync();
        [unroll] for (uint s = 0; s < SCORE_ROWS / 4; s++)
        {
            uint slot = scorer_r + s * SCORERS_R;
            float4 highest = partial[0][slot];
            [unroll] for (uint t = 1; t < SCORERS_T; t++)
                highest = max(highest, partial[t][slot]);
            float4 shrink;
            [unroll] for (uint i = 0; i < 4; i++)
            {
                uint row = 4 * s + i;
                float next = max(largest[row], highest[i]);
                shrink[i] = exp(largest[row] - next);
                largest[row] = next;
                totals[row] *= shrink[i];
                [unroll] for (uint j = 0; j < SCORE_TOKENS; j++)
                {
                    float score = scores[row][j];
                    scores[row][j] = score > LOWEST ? exp(score - next) : 0;
                    totals[row] += scores[row][j];
                }
            }
            if (scorer_t == 0)
                shrinks[slot] = shrink;
            [unroll] for (uint w = 0; w < SCORE_TOKENS; w++)
                weights[4 * (scorer_t + w / 4 * SCORERS_T) + w % 4][slot] = float4(
                    scores[4 * s][w], scores[4 * s + 1][w], scores[4 * s + 2][w],
                    scores[4 * s + 3][w]);
        }
        GroupMemoryBarrierWithGroupSync();
        [unroll] for (uint x = 0; x < PART / 4; x++)
        {
            float4 shrink = shrinks[column_r + x * THREADS_R];
            [unroll] for (uint i = 0; i < 4; i++)
                [unroll] for (uint j = 0; j < PART; j++)
                    sums[4 * x + i][j] *= shrink[i];
        }
        uint stop = min(TOKENS, end - base);
        [loop] for (uint chunk = 0; chunk < stop; chunk += VALUES)
        {
            [unroll] for (uint y = 0; y < LOADS_V; y++)
                staged[THREADS * y + thread] = next_v[y];
            GroupMemoryBarrierWithGroupSync();
            [unroll] for (uint z = 0; z < LOADS_V; z++)
            {
                uint item = THREADS * z + thread;
                uint token = base + chunk + VALUES + item / HEAD_VECTORS;
                next_v[z] = load_vector(cache_vector(sequence, 1, kv_head, min(token, end - 1))
                    + min(item % HEAD_VECTORS, vectors - 1));
            }
            [unroll] for (uint token = 0; token < VALUES; token++)
            {
                float4 ps[PART / 4], vs[PART / 4];
                [unroll] for (uint m = 0; m < PART / 4; m++)
                    ps[m] = weights[chunk + token][column_r + m * THREADS_R];
                [unroll] for (uint n = 0; n < PART / 4; n++)
                    vs[n] = staged[token * HEAD_VECTORS + column_d + n * THREADS_D];
                [unroll] for (uint o = 0; o < PART; o++)
                    [unroll] for (uint p = 0; p < PART; p++)
                        sums[o][p] += ps[o / 4][o % 4] * vs[p / 4][p % 4];
            }
            GroupMemoryBarrierWithGroupSync();
        }
    }

    [unroll] for (uint u = 0; u < SCORE_ROWS / 4; u++)
        partial[scorer_t][scorer_r + u * SCORERS_R] =
            float4(totals[4 * u], totals[4 * u + 1], totals[4 * u + 2], totals[4 * u + 3]);
    GroupMemoryBarrierWithGroupSync();
    [unroll] for (uint m = 0; m < PART / 4; m++)
    {
        float4 total = partial[0][column_r + m * THREADS_R];
        [unroll] for (uint t = 1; t < SCORERS_T; t++)
            total += partial[t][column_r + m * THREADS_R];
        [unroll] for (uint i = 0; i < 4; i++)
        {
            uint row = 4 * (column_r + m * THREADS_R) + i;
            uint at = row_vector(start, first + min(row, rows - 1), sharing, kv_head);
            [unroll] for (uint n = 0; n < PART / 4; n++)
            {
                uint vec = column_d + n * THREADS_D;
                float4 values = float4(
                    sums[4 * m + i][4 * n], sums[4 * m + i][4 * n + 1],
                    sums[4 * m + i][4 * n + 2], sums[4 * m + i][4 * n + 3]);
                if (row < rows && vec < vectors)
                    output.Store4(16 * (at + vec), asuint(values / total[i]));
            }
        }
    }
}
