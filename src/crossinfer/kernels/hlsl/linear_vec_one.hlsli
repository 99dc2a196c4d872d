// linear_vec with a single row of x, which is read where it is needed.

#include "weight_piece.hlsli"

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
            float2 input_sums = piece_sums(inputs[e]);
            [unroll] for (uint p = 0; p < PRODUCTS; p++)
                add_piece(piece[e][p], number, inputs[e], input_sums, sums[0][p]);
        }
    }
    // Every team has summed all squares, and all teams are added.
    squares[0] *= float(constants.lanes) / float(THREADS);
}
