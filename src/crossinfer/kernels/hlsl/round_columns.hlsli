// Sixteen columns of x as signed bytes with one scale. `kernels/activations.py` has the same in
// NumPy, to the bit: nothing here depends on how a driver divides or joins operations.

struct Rounded
{
    uint4 codes;
    float scale;
};

// The low byte of a float of 1.5 · 2^23 + 128 counts from -128 in ones.
static const float CODE_BASE = 12582912.0 + 128.0;
static const uint CODE_BASES = 0x8b400000;  // of four such floats, shifted into a word and added
static const uint SIGNS = 0x80808080;

// `columns` come in any order, four in a word of `codes`.
Rounded round_columns(float4 columns[4])
{
    uint largest = 0;  // as an integer, so that a NaN counts as the largest
    [unroll] for (uint v = 0; v < 4; v++)
        [unroll] for (uint i = 0; i < 4; i++)
            largest = max(largest, asuint(columns[v][i]) << 1);
    largest >>= 1;
    // A quotient of so few bits is the same with any division that is right to 100 units.
    float quotient = 126.5 / asfloat(largest & 0xffff8000);
    float inverse = asfloat((asuint(quotient) + 0x1000) & 0xffffe000);

    Rounded made;
    made.scale = 1.0 / inverse;
    if (largest < 0x0d800000)  // 2^-100
    {
        inverse = 0;
        made.scale = 0;
    }
    [unroll] for (uint w = 0; w < 4; w++)
    {
        precise float4 scaled = columns[w] * inverse;
        precise float4 moved = scaled + CODE_BASE;
        uint4 bits = asuint(moved);
        uint bytes = bits.x + (bits.y << 8) + (bits.z << 16) + (bits.w << 24) - CODE_BASES;
        made.codes[w] = bytes ^ SIGNS;
    }
    return made;
}

// The words of `codes` moved on by `places`, the last to the front.
uint4 moved_on(uint4 codes, uint places)
{
    codes = places & 1 ? codes.wxyz : codes;
    return places & 2 ? codes.zwxy : codes;
}
