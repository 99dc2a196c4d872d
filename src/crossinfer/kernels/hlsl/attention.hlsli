// What the kernels of attention share: constants, and how the tokens of a row are cut into parts.
//
//     PART_TOKENS    parts have a multiple of so many tokens, 64 if it is not defined

#ifndef PART_TOKENS
#define PART_TOKENS 64
#endif

struct Constants
{
    uint query_heads;
    uint kv_heads;
    uint head_dim;
    uint sequences;
    uint table_blocks;
    uint window;    // tokens that a row sees at most; so many that none is hidden without a window
    uint parts;
    uint ml_offset; // the element of scratch memory where maxima and sums start
    float scale;
};
CONSTANTS(Constants);

// Less than any score, and no infinity: differences of maxima stay numbers.
static const float LOWEST = -3.0e38;

// The first token that the row at `position` sees.
uint first_token(uint position)
{
    return position + 1 - min(position + 1, constants.window);
}

// Tokens of each part of the row at `position`; the last parts may be shorter or empty.
uint part_tokens(uint position)
{
    uint count = position + 1 - first_token(position);
    uint steps = (count + PART_TOKENS - 1) / PART_TOKENS;
    return PART_TOKENS * ((steps + constants.parts - 1) / constants.parts);
}
