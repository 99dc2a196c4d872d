// linear_vec with a single row of x, rounded to bytes, and weights in blocks: integer dot products.
// A piece is sixteen neighbouring columns, half a chunk. Their sum of products is an integer below
// 2^19, so float32 holds it.

#include "dot.hlsli"
#include "round_columns.hlsli"

static const uint PIECE_VECTORS = 4;
// What is left of a code's zero after 8 bits were made signed.
static const int ZERO_LEFT = CODE_ZERO - (CODE_BITS & 8 ? 128 : 0);

// All words that hold codes of the piece's chunk, but of eight bits only its own.
struct Piece
{
    uint4 plane8, plane4;
    uint2 plane2;
    uint plane1;
    uint factors;
    uint scale_codes;
};

Piece load_piece(
    StructuredBuffer<uint4> vectors, ByteAddressBuffer weight, uint row, uint chunks, uint number)
{
    Piece made = (Piece)0;
    uint chunk = number / 2, at = row;
#if CODE_BITS & 8
    made.plane8 = vectors[at / 16 + number];
    at += 32 * chunks;
#endif
#if CODE_BITS & 4
    made.plane4 = vectors[at / 16 + chunk];
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

Piece load_product(uint product, uint row, uint number)
{
#if GATED
    if (product >= ROWS)
        return load_piece(up_weight, up_weight_bytes, row, constants.chunks, number);
#endif
    return load_piece(weight, weight_bytes, row, constants.chunks, number);
}

// Σ code · x over a piece, in units of the scale of x.
int piece_dot(Piece piece, uint number, uint4 codes)
{
    uint first = 4 * (number % 2);  // of the chunk's vectors
    int sum = 0;
    [unroll] for (uint v = 0; v < 4; v++)
    {
        uint bytes = bytes_of_planes(
            piece.plane8[v], piece.plane4[v] >> first, piece.plane2[v % 2] >> first,
            piece.plane1 >> first, v);
        sum = add_dot(CODE_BITS & 8 ? bytes ^ SIGNS : bytes, codes[v], sum);
    }
    return sum;
}

// An integer below 2^22 as a float, without a conversion, which is slow on some devices.
float small_float(int value)
{
    return asfloat(0x4b400000 + value) - 12582912.0;
}

struct Inputs
{
    uint4 codes;
    float scale;  // 0 past the end of a row
    float sum;    // of the columns, as rounded
};

// A piece of x, or zeros; its squares are added to `squares`.
Inputs load_inputs(uint lane, uint number, bool counts, inout float squares)
{
    // Lanes side by side begin with different vectors of their pieces: 64 bytes apart, they would
    // all want the same banks of a cache.
    uint turn = lane / 2 % 4;
    float4 columns[4];
    [unroll] for (uint v = 0; v < 4; v++)
        columns[v] = load_columns(x, 0, 4 * number + (v + turn) % 4);
    if (constants.follows & HAS_NORM)
        [unroll] for (uint v = 0; v < 4; v++)
        {
            squares += counts ? dot(columns[v], columns[v]) : 0;
            precise float4 scaled =
                columns[v] * load_columns(norm, 0, 4 * number + (v + turn) % 4);
            columns[v] = scaled;
        }
    Rounded rounded = round_columns(columns);
    Inputs made;
    made.codes = moved_on(rounded.codes, turn);
    made.scale = counts ? rounded.scale : 0;
    int sum = 0;
    [unroll] for (uint w = 0; w < 4; w++)
        sum = add_dot(made.codes[w], 0x01010101, sum);
    made.sum = made.scale * small_float(sum);
    return made;
}

void add_pieces(Piece piece[PRODUCTS], uint number, Inputs inputs, inout float sums[1][PRODUCTS])
{
    [unroll] for (uint p = 0; p < PRODUCTS; p++)
    {
        float2 factors = group_factors(
            piece[p].factors, piece[p].scale_codes, number / 2, (GROUPS - 1) * (number % 2));
        float part = inputs.scale * small_float(piece_dot(piece[p], number, inputs.codes));
        if (ZERO_LEFT != 0)
            part -= float(ZERO_LEFT) * inputs.sum;
        sums[0][p] += factors.x * part;
        if (HAS_OFFSET)
            sums[0][p] += factors.y * inputs.sum;
    }
}

void add_products(
    uint rows[ROWS], uint lane, uint pieces, inout float sums[1][PRODUCTS], inout float squares[1])
{
    for (uint start = 0; start < pieces; start += constants.lanes)
    {
        uint number = min(start + lane, pieces - 1);
        Piece piece[PRODUCTS];
        [unroll] for (uint p = 0; p < PRODUCTS; p++)
            piece[p] = load_product(p, rows[p % ROWS], number);
        Inputs inputs = load_inputs(lane, number, start + lane < pieces, squares[0]);
        add_pieces(piece, number, inputs, sums);
    }
    // Every team has summed all squares, and all teams are added.
    squares[0] *= float(constants.lanes) / float(THREADS);
}
