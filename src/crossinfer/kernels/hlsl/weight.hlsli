// Decodes weights in the layout of `layout.py`. One decoder for every affine block format, and the
// scalar types beside it; the defines come from `weights.py`.
//
//     WEIGHT_KIND     0: f32, 1: f16, 2: bf16, 3: blocks
//     UNIT_VECTORS    vectors (of four columns) of a unit, which is what one lane takes at once
//     UNIT_WORDS      words of a unit
//  of blocks only (a unit is a chunk of 32 columns):
//     CODE_BITS       bits of a code; its binary digits say which planes there are
//     CODE_ZERO       the code that means 0
//     GROUPS          scale groups of a chunk
//     BLOCK_CHUNKS    chunks of a block
//     HAS_OFFSET      1 if weights have an offset (the negative min)
//     TWO_LEVEL       1 if scales and offsets have codes of their own
//
//     w = scale · code + offset        code = q - CODE_ZERO
//
// `row` is the byte where a row starts, `chunks` its number of chunks. What takes whole units has
// two views of a weight: as 16-byte words, since drivers may load the words of a ByteAddressBuffer
// one by one, and as bytes. Rows start at multiples of 16.

// A unit as it comes from memory. Nothing is computed from it before it is used, so that loads of
// several units can be under way together.
struct Unit
{
    uint words[UNIT_WORDS];
#if WEIGHT_KIND == 3
    uint factors;      // the word with those of the chunk's block
    uint scale_codes;  // the word with those of the chunk
#endif
};

#if WEIGHT_KIND == 3

static const uint FACTORS = 1 + HAS_OFFSET;

// The codes of four bytes. The low bits of a float of 2^23 count in ones: nothing is converted.
float4 codes_of_bytes(uint bytes)
{
    uint4 codes = uint4(bytes & 255, bytes >> 8 & 255, bytes >> 16 & 255, bytes >> 24);
    return asfloat(codes | 0x4b000000) - float(8388608 + CODE_ZERO);
}

// The word that holds d and the offset's factor of the chunk's block.
uint load_factors(ByteAddressBuffer weight, uint row, uint chunks, uint chunk)
{
    uint at = row + 4 * CODE_BITS * chunks;
    uint block = chunk / BLOCK_CHUNKS;
#if HAS_OFFSET
    return weight.Load(at + 4 * block);
#else
    return weight.Load(at + 4 * (block / 2));
#endif
}

float2 factors_of_word(uint word, uint chunk)
{
#if HAS_OFFSET
    return halves(word);
#else
    return float2(f16tof32(word >> 16 * (chunk / BLOCK_CHUNKS % 2)), 0);
#endif
}

// The word that holds the chunk's codes: the scale codes of its groups, then their min codes.
uint load_scale_codes(ByteAddressBuffer weight, uint row, uint chunks, uint chunk)
{
#if TWO_LEVEL
    uint blocks = chunks / BLOCK_CHUNKS;
    uint at = row + 4 * CODE_BITS * chunks + 4 * ((FACTORS * blocks + 1) / 2);
    return weight.Load(at + (GROUPS * FACTORS * chunk & ~3));
#else
    return 0;
#endif
}

// (scale, offset) of a group of the chunk, from the two words that were loaded for it.
float2 group_factors(uint factors, uint scale_codes, uint chunk, uint group)
{
    float2 values = factors_of_word(factors, chunk);
#if TWO_LEVEL
    uint codes = scale_codes >> 8 * (GROUPS * FACTORS * chunk & 3);
    int scale = int(codes << (24 - 8 * group)) >> 24;
    uint offset = HAS_OFFSET ? codes >> 8 * (GROUPS + group) & 255 : 0;
    return values * float2(scale, offset);
#else
    return values;
#endif
}

// (slope, level) of a group of the chunk, whose part of a product is
//
//     Σ w · x = slope · Σ f · x + level · Σ x        f = 1 + q / 2^CODE_BITS
//
// since a code takes a shift and a mask to become the fraction f of a float.
float2 group_line(uint factors, uint scale_codes, uint chunk, uint group)
{
    float2 scaled = group_factors(factors, scale_codes, chunk, group);
    return float2(
        scaled.x * float(1 << CODE_BITS),
        scaled.y - scaled.x * float((1 << CODE_BITS) + CODE_ZERO));
}

Unit load_unit(
    StructuredBuffer<uint4> vectors, ByteAddressBuffer weight, uint row, uint chunks, uint chunk)
{
    Unit unit;
    uint at = row;
#if CODE_BITS & 8
    uint4 a = vectors[at / 16 + 2 * chunk];
    uint4 b = vectors[at / 16 + 2 * chunk + 1];
    at += 32 * chunks;
    [unroll] for (uint i = 0; i < 4; i++)
    {
        unit.words[i] = a[i];
        unit.words[4 + i] = b[i];
    }
#endif
#if CODE_BITS & 4
    uint4 c = vectors[at / 16 + chunk];
    at += 16 * chunks;
    [unroll] for (uint j = 0; j < 4; j++)
        unit.words[(CODE_BITS & 8) + j] = c[j];
#endif
#if CODE_BITS & 2
    uint2 d = weight.Load2(at + 8 * chunk);
    at += 8 * chunks;
    unit.words[(CODE_BITS & 12)] = d.x;
    unit.words[(CODE_BITS & 12) + 1] = d.y;
#endif
#if CODE_BITS & 1
    unit.words[CODE_BITS & 14] = weight.Load(at + 4 * chunk);
#endif
    unit.factors = load_factors(weight, row, chunks, chunk);
    unit.scale_codes = load_scale_codes(weight, row, chunks, chunk);
    return unit;
}

// The codes of four columns, each in a byte, from the words of all planes that hold them.
uint bytes_of_planes(uint plane8, uint plane4, uint plane2, uint plane1, uint vec)
{
    uint bytes = 0;
#if CODE_BITS & 8
    bytes |= plane8;
#endif
#if CODE_BITS & 4
    bytes |= (plane4 >> 4 * (vec / 4) & 0x0f0f0f0f) << (CODE_BITS & 8);
#endif
#if CODE_BITS & 2
    bytes |= (plane2 >> 2 * (vec / 2) & 0x03030303) << (CODE_BITS & 12);
#endif
#if CODE_BITS & 1
    bytes |= (plane1 >> vec & 0x01010101) << (CODE_BITS & 14);
#endif
    return bytes;
}

// The fractions f (see group_line) of four codes.
float4 fractions(uint bytes)
{
    uint4 moved = uint4(
        bytes << (23 - CODE_BITS),
        bytes << (15 - CODE_BITS),
        CODE_BITS < 8 ? bytes << ((7 - CODE_BITS) & 31) : bytes >> 1,
        bytes >> (1 + CODE_BITS));
    const uint mask = ((1u << CODE_BITS) - 1) << (23 - CODE_BITS);
    return asfloat((moved & mask) | 0x3f800000);
}

// The fractions f of vector `vec` of a unit; `vec` is known when the shader is compiled.
float4 unit_values(Unit unit, uint vec)
{
    uint plane8 = 0, plane4 = 0, plane2 = 0, plane1 = 0;
#if CODE_BITS & 8
    plane8 = unit.words[vec];
#endif
#if CODE_BITS & 4
    plane4 = unit.words[(CODE_BITS & 8) + vec % 4];
#endif
#if CODE_BITS & 2
    plane2 = unit.words[(CODE_BITS & 12) + vec % 2];
#endif
#if CODE_BITS & 1
    plane1 = unit.words[CODE_BITS & 14];
#endif
    return fractions(bytes_of_planes(plane8, plane4, plane2, plane1, vec));
}

// The weights of columns 4 · column_vector … of a row.
float4 load_weights(ByteAddressBuffer weight, uint row, uint chunks, uint column_vector)
{
    uint chunk = column_vector / 8, vec = column_vector % 8;
    uint plane8 = 0, plane4 = 0, plane2 = 0, plane1 = 0;
    uint at = row;
#if CODE_BITS & 8
    plane8 = weight.Load(at + 32 * chunk + 4 * vec);
    at += 32 * chunks;
#endif
#if CODE_BITS & 4
    plane4 = weight.Load(at + 16 * chunk + 4 * (vec % 4));
    at += 16 * chunks;
#endif
#if CODE_BITS & 2
    plane2 = weight.Load(at + 8 * chunk + 4 * (vec % 2));
    at += 8 * chunks;
#endif
#if CODE_BITS & 1
    plane1 = weight.Load(at + 4 * chunk);
#endif
    float2 scaled = group_factors(
        load_factors(weight, row, chunks, chunk), load_scale_codes(weight, row, chunks, chunk),
        chunk, vec / (8 / GROUPS));
    uint bytes = bytes_of_planes(plane8, plane4, plane2, plane1, vec);
    return scaled.x * codes_of_bytes(bytes) + scaled.y;
}

#else

float4 values_of_words(uint4 words)
{
#if WEIGHT_KIND == 0
    return asfloat(words);
#elif WEIGHT_KIND == 1
    return float4(halves(words.x), halves(words.y));
#else
    return asfloat(uint4(words.x << 16, words.x & 0xffff0000, words.y << 16, words.y & 0xffff0000));
#endif
}

Unit load_unit(StructuredBuffer<uint4> vectors, uint row, uint number)
{
    Unit unit;
    uint4 words = vectors[row / 16 + number];
    [unroll] for (uint i = 0; i < 4; i++)
        unit.words[i] = words[i];
    return unit;
}

float4 unit_values(Unit unit, uint vec)
{
#if WEIGHT_KIND == 0
    return values_of_words(uint4(unit.words[0], unit.words[1], unit.words[2], unit.words[3]));
#else
    return values_of_words(uint4(unit.words[2 * vec], unit.words[2 * vec + 1], 0, 0));
#endif
}

float4 load_weights(ByteAddressBuffer weight, uint row, uint chunks, uint column_vector)
{
#if WEIGHT_KIND == 0
    return values_of_words(weight.Load4(row + 16 * column_vector));
#else
    return values_of_words(uint4(weight.Load2(row + 8 * column_vector), 0, 0));
#endif
}

#endif
