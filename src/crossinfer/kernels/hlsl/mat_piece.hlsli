// Eight columns of a row of weights, as they come from memory and decoded: what a thread of
// linear_mat takes at once. Loads and decoding are apart, so that there is something to compute
// while the words are on their way.
//
//     PIECE_WORDS     words of codes or scalars of a piece
//     ODD_COLUMNS     1 if rows end within a piece
//
// Of blocks a piece is a quarter of a chunk; see weight.hlsli for the other defines and the layout.

#if WEIGHT_KIND == 3
#define PieceBuffer ByteAddressBuffer
#else
#define PieceBuffer StructuredBuffer<uint4>
#endif

struct MatPiece
{
    uint words[PIECE_WORDS];
#if WEIGHT_KIND == 3
    uint factors;
    uint scale_codes;
#endif
};

// Piece `number` of the row of `row_vectors` 16-byte words that starts at word `row`.
MatPiece load_mat_piece(PieceBuffer weight, uint row, uint row_vectors, uint chunks, uint number)
{
    MatPiece piece;
#if WEIGHT_KIND == 0
    // Rows are padded to 16 bytes, so the second half of the last piece may be another row's.
    uint second = min(2 * number + 1, row_vectors - 1);
    uint4 a = weight[row + 2 * number];
    uint4 b = weight[row + second];
#if ODD_COLUMNS
    b = second == 2 * number + 1 ? b : 0;
#endif
    [unroll] for (uint i = 0; i < 4; i++)
    {
        piece.words[i] = a[i];
        piece.words[4 + i] = b[i];
    }
#elif WEIGHT_KIND == 3
    uint chunk = number / 4, quarter = number % 4;
    uint at = 16 * row, word = 0;
#if CODE_BITS & 8
    uint2 plane8 = weight.Load2(at + 32 * chunk + 8 * quarter);
    at += 32 * chunks;
    piece.words[word++] = plane8.x;
    piece.words[word++] = plane8.y;
#endif
#if CODE_BITS & 4
    uint2 plane4 = weight.Load2(at + 16 * chunk + 8 * (quarter % 2));
    at += 16 * chunks;
    piece.words[word++] = plane4.x;
    piece.words[word++] = plane4.y;
#endif
#if CODE_BITS & 2
    uint2 plane2 = weight.Load2(at + 8 * chunk);
    at += 8 * chunks;
    piece.words[word++] = plane2.x;
    piece.words[word++] = plane2.y;
#endif
#if CODE_BITS & 1
    piece.words[word++] = weight.Load(at + 4 * chunk);
#endif
    piece.factors = load_factors(weight, 16 * row, chunks, chunk);
    piece.scale_codes = load_scale_codes(weight, 16 * row, chunks, chunk);
#else
    uint4 a = weight[row + number];
    [unroll] for (uint i = 0; i < 4; i++)
        piece.words[i] = a[i];
#endif
    return piece;
}

// The first four columns of piece `number`, or the others (`side` 1, known when compiled).
float4 mat_piece_values(MatPiece piece, uint number, uint side)
{
#if WEIGHT_KIND == 3
    uint plane8 = 0, plane4 = 0, plane2 = 0, plane1 = 0, word = 0;
#if CODE_BITS & 8
    plane8 = piece.words[word + side];
    word += 2;
#endif
#if CODE_BITS & 4
    plane4 = piece.words[word + side];
    word += 2;
#endif
#if CODE_BITS & 2
    plane2 = piece.words[word + side];
    word += 2;
#endif
#if CODE_BITS & 1
    plane1 = piece.words[word];
#endif
    uint chunk = number / 4, vec = number % 4 * 2 + side;
    float2 scaled = group_factors(piece.factors, piece.scale_codes, chunk, vec / (8 / GROUPS));
    uint bytes = bytes_of_planes(plane8, plane4, plane2, plane1, vec);
    return scaled.x * codes_of_bytes(bytes) + scaled.y;
#elif WEIGHT_KIND == 0
    return values_of_words(uint4(
        piece.words[4 * side], piece.words[4 * side + 1],
        piece.words[4 * side + 2], piece.words[4 * side + 3]));
#else
    return values_of_words(uint4(piece.words[2 * side], piece.words[2 * side + 1], 0, 0));
#endif
}
