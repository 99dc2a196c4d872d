// Pieces: what a lane takes of a row of weights at once beside a single row of x. Of scalars a unit
// of 16 bytes, of blocks half a chunk. `number` counts the pieces of a row.

// sum + a · b, without an addition of its own.
void add_products_of_four(float4 a, float4 b, inout float sum)
{
    sum = mad(a.x, b.x, sum);
    sum = mad(a.y, b.y, sum);
    sum = mad(a.z, b.z, sum);
    sum = mad(a.w, b.w, sum);
}

#if WEIGHT_KIND == 3

#define Piece Half
static const uint PIECE_VECTORS = 4;

// Half the columns of a chunk, beside which another lane takes the other half: whole chunks would
// be too far apart in x. Half j has the vectors 2j, 2j + 1, 2j + 4 and 2j + 5, which lie in the same
// words; of eight bits it has 4j to 4j + 3.
struct Half
{
    uint4 plane8;
    uint2 plane4, plane2;
    uint plane1;
    uint factors;
    uint scale_codes;
};

Half load_piece(
    StructuredBuffer<uint4> vectors, ByteAddressBuffer weight, uint row, uint chunks, uint number)
{
    Half made = (Half)0;
    uint chunk = number / 2, at = row;
#if CODE_BITS & 8
    made.plane8 = vectors[at / 16 + number];
    at += 32 * chunks;
#endif
#if CODE_BITS & 4
    made.plane4 = weight.Load2(at + 8 * number);
    at += 16 * chunks;
#endif
#if CODE_BITS & 2
    made.plane2 = weight.Load2(at + 8 * chunk);
    at += 8 * chunks;
#endif
#if CODE_BITS & 1
    made.plane1 = weight.Load(at + 4 * chunk);
#endif
    made.factors = load_factors(weight, row, chunks, chunk);
    made.scale_codes = load_scale_codes(weight, row, chunks, chunk);
    return made;
}

// The vector of the row that comes `v`-th in a half.
uint piece_vector(uint number, uint v)
{
    uint chunk = number / 2, j = number % 2;
    return 8 * chunk + (CODE_BITS & 8 ? 4 * j + v : 2 * j + v % 2 + 4 * (v / 2));
}

// Σ x over each of the two scale groups that a half may have, or over the parts of the only one.
float2 piece_sums(float4 inputs[4])
{
    return float2(dot(inputs[0] + inputs[1], 1), dot(inputs[2] + inputs[3], 1));
}

// Adds Σ w · x over a half to `sum`; `input_sums` is piece_sums(inputs).
void add_piece(
    Half piece, uint number, float4 inputs[4], float2 input_sums, inout float sum)
{
    uint chunk = number / 2, moved = 2 * (number % 2);
    float2 parts = 0;
    [unroll] for (uint v = 0; v < 4; v++)
    {
        float4 values = fractions(bytes_of_planes(
            piece.plane8[v], piece.plane4[v % 2], piece.plane2[v % 2] >> moved,
            piece.plane1 >> (moved + v % 2), 4 * (v / 2)));
        add_products_of_four(values, inputs[v], parts[v / 2]);
    }
#if GROUPS == 1
    parts.x += parts.y;
    input_sums.x += input_sums.y;
#endif
    [unroll] for (uint group = 0; group < GROUPS; group++)
    {
#if HAS_OFFSET
        float2 values = group_line(piece.factors, piece.scale_codes, chunk, group);
        sum += values.x * parts[group] + values.y * input_sums[group];
#else
        float slope = group_line(piece.factors, piece.scale_codes, chunk, group).x;
        const float zero = 1.0 + float(CODE_ZERO) / float(1 << CODE_BITS);
        sum += slope * (parts[group] - zero * input_sums[group]);
#endif
    }
}

#else

#define Piece Unit
static const uint PIECE_VECTORS = UNIT_VECTORS;

Unit load_piece(StructuredBuffer<uint4> vectors, uint row, uint number)
{
    return load_unit(vectors, row, number);
}

uint piece_vector(uint number, uint v)
{
    return UNIT_VECTORS * number + v;
}

float2 piece_sums(float4 inputs[UNIT_VECTORS])
{
    return 0;  // nothing needs them
}

void add_piece(
    Unit piece, uint number, float4 inputs[UNIT_VECTORS], float2 input_sums, inout float sum)
{
    [unroll] for (uint v = 0; v < UNIT_VECTORS; v++)
        add_products_of_four(unit_values(piece, v), inputs[v], sum);
}

#endif
